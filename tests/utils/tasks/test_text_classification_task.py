"""Text classification from data to metric: the template's model on both targets, inputs by name, and bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from constructed_models import NAME, bound, described, evaluated, opened, options, written

from engine import ConfigError, DataError, InputError, ModelError, TensorSpec
from utils.metrics.f1 import Accuracy, MacroF1
from utils.tasks.model import Model
from utils.tasks.text_classification import TextClassification

IDS = TensorSpec("input_ids", np.dtype(np.int64), (None, None), batch_axis=0, symbols=("batch", "seq"))
NOTES = {"vocabulary": '["<pad>", "<unk>", "good", "bad"]', "class_labels": '["negative", "positive"]'}
MODEL = Model(Path("m.onnx"), (IDS, replace(IDS, name="attention_mask")), metadata=NOTES)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(TextClassification, tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("file", ["_dyn", "_float16_dyn"])
def test_the_constructed_model_reads_on_the_baseline(tiny: Path, file: str) -> None:
    """With no plans, with plans, and one text at a time: padding changes nothing."""
    with opened(tiny / f"{NAME}{file}.onnx", "onnx") as engine:
        data = tiny / "data" / "val.tsv"
        metric, scores = evaluated(TextClassification, engine, described(engine), data, options(TextClassification))
        _, planned = evaluated(
            TextClassification, engine, described(engine, {"seq": (8, 32, 64)}), data, options(TextClassification)
        )
        _, alone = evaluated(
            TextClassification, engine, described(engine), data, options(TextClassification, batch_size=1)
        )
    assert metric.compute() == pytest.approx(0.95)
    assert metric.secondary()["macro_f1"] == pytest.approx(0.95, abs=0.001)
    np.testing.assert_allclose(planned, scores, atol=2e-3)
    np.testing.assert_allclose(alone, scores, atol=2e-3)


@pytest.mark.parametrize("file", ["_dyn", "_float16_dyn"])
def test_the_constructed_model_reads_on_the_card(tiny: Path, file: str) -> None:
    with opened(tiny / f"{NAME}{file}.onnx", "sdaa", input_size=((4, 32), (4, 32))) as engine:
        opt = options(TextClassification, metric="macro_f1")
        metric, scores = evaluated(TextClassification, engine, described(engine), tiny / "data" / "val.tsv", opt)
    assert metric.name == "macro_f1"
    assert metric.compute() == pytest.approx(0.95, abs=0.001)
    assert len(scores) == 80


def test_the_static_file_accepts_truncated_texts(tiny: Path) -> None:
    with opened(tiny / f"{NAME}.onnx", "onnx") as engine:
        model, data = described(engine), tiny / "data" / "texts.txt"
        _, scores = evaluated(
            TextClassification, engine, model, data, options(TextClassification, batch_size=1, max_length=16)
        )
        with pytest.raises(DataError, match=r"fixed to 16"):
            evaluated(
                TextClassification,
                engine,
                model,
                tiny / "data" / "val.tsv",
                options(TextClassification, batch_size=1, max_length=0),
            )
        assert bound(TextClassification, model).prepare(["one " * 20]).contexts[0].cut == 4
    assert np.argmax(scores, axis=1).tolist() == [0, 1] * 4


def test_inputs_go_by_name() -> None:
    prepared = bound(TextClassification, MODEL).prepare(["Good, unheard!", "bad"])
    assert [[row.tolist() for row in rows] for rows in prepared.arrays] == [[[2, 1], [3]], [[1, 1], [1]]]
    assert [one.cut for one in prepared.contexts] == [0, 0]
    ids, mask = bound(TextClassification, replace(MODEL, dims={"seq": (4,)})).collate([prepared])
    assert ids.tolist() == [[2, 1, 0, 0], [3, 0, 0, 0]]
    assert mask.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]
    bert = replace(
        MODEL, inputs=(replace(IDS, name="token_type_ids"), replace(IDS, name="mask", dtype=np.dtype("f4")), IDS)
    )
    kinds, flags, numbers = bound(TextClassification, bert, max_length=2).prepare(["bad bad bad"]).arrays
    assert (kinds[0].tolist(), flags[0].tolist(), numbers[0].tolist()) == ([0, 0], [1, 1], [3, 3])
    assert flags[0].dtype == np.float32


def test_models_with_unsupported_inputs() -> None:
    with pytest.raises(ModelError, match=r"tokenizer .*vocabulary.*--tokenizer"):
        bound(TextClassification, replace(MODEL, metadata={})).prepare(["x"])
    with pytest.raises(ModelError, match="has no token <unk>"):
        bound(TextClassification, replace(MODEL, metadata={"vocabulary": '["a"]'})).prepare(["x"])
    with pytest.raises(ModelError, match="inputs are input_ids, pixels"):
        bound(TextClassification, replace(MODEL, inputs=(IDS, replace(IDS, name="pixels")))).prepare(["x"])


def test_decode_is_a_softmax() -> None:
    logits = np.array([[0, np.log(3)], [1e4, -1e4]], np.float32)
    task = bound(TextClassification, MODEL)
    found = task.decode(logits, None)
    np.testing.assert_allclose(found, [[0.25, 0.75], [1.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(task.decode([logits.astype(np.float16)], None), found, atol=1e-3)
    assert np.isnan(task.decode(np.array([[np.inf, 0]], np.float32), None)).any()
    for bad in (np.zeros((2, 3, 4), np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 1), np.float32)):
        with pytest.raises(InputError, match="N x C floating-point"):
            task.decode(bad, None)


def test_answers() -> None:
    scores = np.array([0.07, 0.93], np.float32)
    assert bound(TextClassification, MODEL).show("x", scores).text == "positive  0.93"
    both = bound(TextClassification, MODEL, topk=5).show("x", scores)
    assert both.text == "positive  0.93   negative  0.07"
    assert json.loads(json.dumps(both.answer)) == [
        {"label": "positive", "score": 0.93},
        {"label": "negative", "score": 0.07},
    ]
    assert both.save is None
    assert bound(TextClassification, replace(MODEL, metadata={})).show("x", scores).text == "1  0.93"
    with pytest.raises(ModelError, match=r"2 labels .*3 classes"):
        bound(TextClassification, MODEL).show("x", np.ones(3))


def test_one_sample_is_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    paths = {"data": tmp_path / "a.txt"}
    assert len(bound(TextClassification, MODEL, "multi").load(paths)) == 3
    assert bound(TextClassification, MODEL, "single", batch_size=1).load(paths).batch([0]).samples == ["one"]
    assert len(bound(TextClassification, MODEL, "single", batch_size=2).load(paths)) == 2
    assert len(bound(TextClassification, MODEL, "single", batch_size=9).load(paths)) == 3


def test_the_requested_metric(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    data = bound(TextClassification, MODEL).load({"data": tmp_path / "a.txt"})
    accuracy, f1 = (
        bound(TextClassification, MODEL, metric=name, topk=2).metric(data) for name in ("accuracy", "macro_f1")
    )
    assert isinstance(accuracy, Accuracy)
    assert isinstance(f1, MacroF1)
    assert (accuracy.name, accuracy.labels) == ("top2", ("negative", "positive"))


@pytest.mark.parametrize(("given", "said"), [({"max_length": -1}, "--max_length -1"), ({"topk": 0}, "--topk 0 must")])
def test_invalid_options(given: dict[str, int], said: str) -> None:
    bound(TextClassification, MODEL).check()
    with pytest.raises(ConfigError, match=said):
        bound(TextClassification, MODEL, **given).check()
