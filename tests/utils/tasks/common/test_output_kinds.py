"""Models of every domain, extended by a softmax, a sigmoid, a choice or a transposition: the metric stays."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import options
from extended_models import LOG_SOFTMAX, SIGMOID, SOFTMAX, TO_FLOAT, Step, chosen, extended
from onnx import TensorProto
from support import ROOT

from engine import ConfigError, EngineSpec, InputError, ModelError, TecoInferError, open_engine
from utils.metrics.base import Metric
from utils.tasks.base import AnyTask, task_class
from utils.tasks.classification.task import Classification
from utils.tasks.ctr_prediction.task import CTR_PREDICTION
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model
from utils.tasks.node_classification.task import NODE_CLASSIFICATION
from utils.tasks.policy_rollout.task import POLICY_ROLLOUT
from utils.tasks.question_answering import QUESTION_ANSWERING
from utils.tasks.segmentation.task import Segmentation
from utils.tasks.speech_recognition.task import SPEECH_RECOGNITION
from utils.tasks.text_classification import TEXT_CLASSIFICATION
from utils.tasks.text_generation.task import TEXT_GENERATION
from utils.tasks.text_recognition.task import TEXT_RECOGNITION
from utils.tasks.voice_activity.task import VOICE_ACTIVITY

EXAMPLE = ROOT / "example"
DIGITS = EXAMPLE / "classification/digits/digits_dyn.onnx"
UNET = EXAMPLE / "segmentation/digit_unet/digit_unet_dyn.onnx"
INT64 = TensorProto.INT64
LAST = [("Transpose", {"perm": [0, 2, 3, 1]})]


class Case:
    """A committed model with data, and the options that go with them."""

    def __init__(self, task: AnyTask, model: str, data: str, samples: int, **given: Any) -> None:
        self.task, self.ckpt = task_class(task), EXAMPLE / model
        self.data, self.samples, self.given = self.ckpt.parent / data, samples, given

    def run(self, ckpt: Path | None = None, target: str = "onnx", **given: Any) -> tuple[Metric, list[Any]]:
        """Take some samples through the task; return the metric and the answers."""
        opt = options(self.task, **{"given": set(), **self.given, **given})
        task: Any = self.task(opt)
        dataset = task.load({"data": self.data})
        dataset = dataset.select(range(0, len(dataset), max(1, len(dataset) // self.samples)))
        with open_engine(target, EngineSpec(ckpt=ckpt or self.ckpt, batch_size=16)) as engine:
            task.bind(Model.of(engine))
            task.state = task.setup({"model": engine}, dataset)
            metric, found = task.metric(dataset), list[Any]()
            for batch in dataset.batches(16):
                prepared = task.prepare(batch.samples)
                outputs = task.infer({"model": engine}, task.collate([prepared]), prepared.contexts)
                predictions = task.decode(outputs, prepared.contexts)
                if opt.script == "valid" and batch.targets is not None:
                    metric.update(predictions, batch.targets, prepared.contexts)
                found += list(predictions)
            if opt.script != "valid":
                found = [task.show(s, p) for s, p in zip(dataset_samples(dataset), found, strict=True)]
        return metric, found

    def value(self, ckpt: Path | None = None, **given: Any) -> float:
        """Return the metric."""
        return self.run(ckpt, **given)[0].compute()


def dataset_samples(dataset: Any) -> Sequence[Any]:
    return list(dataset.batch(range(len(dataset))).samples)


CASES = {
    "classification": Case(Classification, "classification/digits/digits_dyn.onnx", "data/val", 90, input_size=[32]),
    "segmentation": Case(Segmentation, "segmentation/digit_unet/digit_unet_dyn.onnx", "data/val", 5, input_size=160),
    "detection": Case(Detection, "detection/digit_detector/digit_detector_dyn.onnx", "data", 20),
    "ocr": Case(TEXT_RECOGNITION, "ocr/digit_crnn/digit_crnn_dyn.onnx", "data/val", 60),
    "gnn": Case(NODE_CLASSIFICATION, "gnn/digits_gcn/digits_gcn_dyn.onnx", "data/digits_graph.npz", 10**6),
    "nlp": Case(TEXT_CLASSIFICATION, "nlp/language_id/language_id_dyn.onnx", "data/val.tsv", 80),
    "questions": Case(QUESTION_ANSWERING, "nlp/bert_qa/small_bert_qa_dyn.onnx", "data/stories.json", 8),
    "language model": Case(TEXT_GENERATION, "nlp/tiny_gpt/tiny_gpt_dyn.onnx", "data/heldout.jsonl", 2),
    "speech": Case(SPEECH_RECOGNITION, "speech/prompts_ctc/prompts_ctc_dyn.onnx", "data/samples.jsonl", 4),
    "voices": Case(VOICE_ACTIVITY, "speech/silero_vad/silero_vad_dyn.onnx", "data/val.jsonl", 1),
    "recommendation": Case(
        CTR_PREDICTION, "recommendation/deepfm_synthetic/deepfm_synthetic_dyn.onnx", "data/val.csv", 900
    ),
    "reinforcement": Case(
        POLICY_ROLLOUT, "reinforcement/ppo_cartpole/ppo_cartpole_dyn.onnx", "recorded.npz", 4, episodes=4
    ),
}
_values: dict[str, float] = {}


def known(name: str) -> float:
    """Return the metric of a committed model, computed once."""
    if name not in _values:
        _values[name] = CASES[name].value()
    return _values[name]


FOUR = [("classification", 2), ("gnn", 3), ("nlp", 2), ("reinforcement", 2), ("speech", 3)]
VARIANTS: list[tuple[str, list[Step], int, int]] = [
    *((name, SOFTMAX, rank, TensorProto.FLOAT) for name, rank in FOUR),
    *((name, LOG_SOFTMAX, rank, TensorProto.FLOAT) for name, rank in FOUR),
    *((name, SIGMOID, rank, TensorProto.FLOAT) for name, rank in FOUR[:4]),
    *((name, chosen(-1), rank - 1, INT64) for name, rank in FOUR[:4]),
    *((name, [*chosen(-1), TO_FLOAT], rank - 1, TensorProto.FLOAT) for name, rank in FOUR[:4]),
    ("classification", chosen(1, 1), 2, INT64),
    ("segmentation", [("Softmax", {"axis": 1})], 4, TensorProto.FLOAT),
    ("segmentation", [("LogSoftmax", {"axis": 1})], 4, TensorProto.FLOAT),
    ("segmentation", LAST, 4, TensorProto.FLOAT),
    ("segmentation", [*LAST, *SOFTMAX], 4, TensorProto.FLOAT),
    ("segmentation", [("Softmax", {"axis": 1}), *LAST], 4, TensorProto.FLOAT),
    ("segmentation", chosen(1), 3, INT64),
    ("segmentation", [*chosen(1), ("Cast", {"to": TensorProto.UINT8})], 3, TensorProto.UINT8),
    ("segmentation", [*chosen(1, 1), TO_FLOAT], 4, TensorProto.FLOAT),
    ("segmentation", [*chosen(1), TO_FLOAT], 3, TensorProto.FLOAT),
    ("segmentation", [*LAST, *chosen(3, 1), TO_FLOAT], 4, TensorProto.FLOAT),
    ("ocr", [("Log", {})], 3, TensorProto.FLOAT),
    ("ocr", chosen(2), 2, INT64),
    ("ocr", [*chosen(2), TO_FLOAT], 2, TensorProto.FLOAT),
    ("recommendation", [("Identity", {})], 1, TensorProto.FLOAT),
]


@pytest.mark.parametrize(("name", "steps", "rank", "kind"), VARIANTS)
def test_the_metric_is_that_of_the_model(name: str, steps: list[Step], rank: int, kind: int, tmp_path: Path) -> None:
    case = CASES[name]
    file = extended(case.ckpt, tmp_path / "m.onnx", steps, rank, kind=kind)
    assert case.value(file) == pytest.approx(known(name), abs=0.002 if steps == SIGMOID else 1e-9)


def test_a_sigmoid_of_maps_costs_no_more_than_its_rounding(tmp_path: Path) -> None:
    file = extended(UNET, tmp_path / "m.onnx", SIGMOID, 4)
    assert CASES["segmentation"].value(file) == pytest.approx(known("segmentation"), abs=2e-3)


def answers(found: Sequence[Any]) -> list[Any]:
    return [one.answer for one in found]


@pytest.mark.parametrize("steps", [SOFTMAX, LOG_SOFTMAX])
def test_displayed_scores_are_unchanged(steps: list[Step], tmp_path: Path) -> None:
    for name, rank in (("classification", 2), ("nlp", 2)):
        case = CASES[name]
        file = extended(case.ckpt, tmp_path / "m.onnx", steps, rank)
        single = {"script": "multi", "topk": 3}
        want, got = (answers(case.run(one, **single)[1]) for one in (None, file))
        for one, other in zip(want, got, strict=True):
            assert [a["label"] for a in one] == [a["label"] for a in other]
            assert [a["score"] for a in one] == pytest.approx([a["score"] for a in other], abs=2e-4)


@pytest.mark.parametrize("name", ["classification", "nlp"])
def test_labels_have_no_score_and_no_second_answer(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    file = extended(case.ckpt, tmp_path / "m.onnx", [*chosen(1), TO_FLOAT], 1)
    best = [one[0]["label"] for one in answers(case.run(script="multi")[1])]
    found = answers(case.run(file, script="multi")[1])
    assert [one[0] for one in found] == [{"label": label, "score": None} for label in best]
    for script in ("valid", "multi"):
        with pytest.raises(ConfigError, match="--topk 2"):
            case.run(file, script=script, topk=2)


def test_labels_and_classes_that_do_not_fit(tmp_path: Path) -> None:
    few = {"notes": {"class_labels": [str(i) for i in range(7)]}}
    scores = extended(DIGITS, tmp_path / "a.onnx", SOFTMAX, 2, **few)
    labels = extended(DIGITS, tmp_path / "b.onnx", chosen(1), 1, kind=INT64, **few)
    maps = extended(UNET, tmp_path / "c.onnx", [("Softmax", {"axis": 1})], 4, **few)
    for case, file, counts in (
        (CASES["classification"], scores, ("7", "10")),
        (CASES["classification"], labels, ("7", "10")),
        (CASES["segmentation"], maps, ("7", "11")),
    ):
        with pytest.raises(TecoInferError) as caught:
            case.run(file)
        assert all(count in str(caught.value).replace(str(file), "") for count in counts)


def test_labels_without_a_known_number_of_classes(tmp_path: Path) -> None:
    unnamed = extended(DIGITS, tmp_path / "a.onnx", chosen(1), 1, kind=INT64, without=["class_labels"])
    assert CASES["classification"].value(unnamed, input_size=[32]) == known("classification")  # by the last layer
    hidden = [("Relu", {}), ("Mul", {"inputs": [np.float32(2)]}), ("CumSum", {"inputs": [np.int64(0)]}), *chosen(1)]
    strange = extended(DIGITS, tmp_path / "b.onnx", hidden, 1, kind=INT64, without=["class_labels"])
    with pytest.raises(ModelError, match="class_labels"):
        CASES["classification"].run(strange)


def test_flags_override_the_graph(tmp_path: Path) -> None:
    """A scaled softmax is nothing that the graph tells; the flag does, and says what it is not as well."""
    scaled: list[Step] = [*SOFTMAX, ("Mul", {"inputs": [np.float32(1)]})]
    file = extended(DIGITS, tmp_path / "m.onnx", scaled, 2)
    case = CASES["classification"]
    want = [one[0]["score"] for one in answers(case.run(script="multi")[1])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        case.run(file, script="multi")
    assert any("--output_kind" in str(one.message) for one in caught)
    found = case.run(file, script="multi", output_kind="probabilities")[1]
    assert [one[0]["score"] for one in answers(found)] == pytest.approx(want, abs=1e-6)
    with pytest.raises(InputError, match="--output_kind"):
        case.run(DIGITS, output_kind="probabilities")
    sums: list[Step] = [("ReduceSum", {"keepdims": 0, "inputs": [np.array([1])]})]
    extra = extended(DIGITS, tmp_path / "n.onnx", sums, 1)
    with pytest.raises(InputError, match="--output_kind"):
        case.run(extra, output_kind="labels")


def test_metadata_go_before_the_graph(tmp_path: Path) -> None:
    scaled: list[Step] = [*SOFTMAX, ("Mul", {"inputs": [np.float32(1)]})]
    case = CASES["classification"]
    noted = {"outputs": {"output": {"kind": "probabilities"}}}
    file = extended(DIGITS, tmp_path / "m.onnx", scaled, 2, notes=noted)
    want, got = (answers(case.run(one, script="multi")[1]) for one in (None, file))
    assert [one[0]["score"] for one in got] == pytest.approx([one[0]["score"] for one in want], abs=1e-6)
    wrong = extended(DIGITS, tmp_path / "n.onnx", SOFTMAX, 2, notes={"outputs": {"output": {"kind": "logits"}}})
    with pytest.raises(ModelError, match=r"Softmax.*--output_kind"):
        case.run(wrong)
    assert case.value(wrong, output_kind="probabilities") == known("classification")


def test_the_layout_may_be_set(tmp_path: Path) -> None:
    """Behind an operator that is not followed, and without labels, a flag says where the classes lie."""
    steps: list[Step] = [*LAST, ("CumSum", {"inputs": [np.int64(3)]}), ("Slice", {"inputs": [[0], [200], [1]]})]
    file = extended(UNET, tmp_path / "m.onnx", steps, 4, without=["class_labels"])
    case = CASES["segmentation"]
    by_shape, by_flag = case.value(file), case.value(file, output_layout="channels_last")
    assert by_shape == by_flag
    with pytest.raises(TecoInferError):
        case.run(UNET, output_layout="channels_last")


def test_one_channel_of_a_sigmoid(tmp_path: Path) -> None:
    """Any digit against the background: its logit, its probability, and the label, with and without the channel."""
    digits: Step = ("Slice", {"inputs": [np.array([1]), np.array([11]), np.array([1])]})
    flip: list[Step] = [digits, ("ReduceMax", {"inputs": [np.array([1])]})]
    binary = {"notes": {"class_labels": ["background", "digit"]}}
    case = CASES["segmentation"]
    maps: dict[str, Path] = {
        "logit": extended(UNET, tmp_path / "a.onnx", flip, 4, **binary),
        "sigmoid": extended(UNET, tmp_path / "b.onnx", [*flip, *SIGMOID], 4, **binary),
        "flat": extended(
            UNET, tmp_path / "c.onnx", [*flip, *SIGMOID, ("Squeeze", {"inputs": [np.array([1])]})], 3, **binary
        ),
        "last": extended(UNET, tmp_path / "d.onnx", [*flip, *SIGMOID, *LAST], 4, **binary),
        "labels": extended(
            UNET,
            tmp_path / "e.onnx",
            [*flip, *SIGMOID, ("GreaterOrEqual", {"inputs": [np.float32(0.5)]}), TO_FLOAT],
            4,
            **binary,
        ),
    }
    found = {name: masks(case, file) for name, file in maps.items()}
    assert {0, 1} == set(np.unique(np.concatenate([one.ravel() for one in found["logit"]])))
    scaled = [*flip, *SIGMOID, ("Mul", {"inputs": [np.float32(1)]})]
    with pytest.warns(UserWarning, match="--output_kind"):
        masks(case, extended(UNET, tmp_path / "f.onnx", scaled, 4, **binary))
    for name in ("sigmoid", "flat", "last", "labels"):
        same = [float((one == other).mean()) for one, other in zip(found["logit"], found[name], strict=True)]
        assert min(same) > 0.999, name


def masks(case: Case, file: Path) -> list[Any]:
    """Return the classes that a model finds in the samples."""
    opt = options(case.task, script="multi", **case.given)
    task: Any = case.task(opt)
    dataset = task.load({"data": case.data / "images"}).select(range(6))
    with open_engine("onnx", EngineSpec(ckpt=file, batch_size=16)) as engine:
        task.bind(Model.of(engine))
        prepared = task.prepare(dataset_samples(dataset))
        return list(task.decode(engine(list(prepared.arrays)), prepared.contexts))


def test_detection_of_logits(tmp_path: Path) -> None:
    case = CASES["detection"]
    want = case.value()
    clipped: list[Step] = [("Clip", {"inputs": [np.float32(1e-6), np.float32(1 - 1e-6)]})]
    noted = {"detection": {"score_form": "logit"}}
    odds = extended(case.ckpt, tmp_path / "m.onnx", [*clipped, *log_odds()], 3, output=1, notes=noted)
    assert case.value(odds) == pytest.approx(want, abs=1e-6)


def log_odds() -> list[Step]:
    """Return steps from a probability p to log(p / (1 - p)): the logarithm of 1 / (1 / p - 1)."""
    return [("Reciprocal", {}), ("Sub", {"inputs": [np.float32(1)]}), ("Reciprocal", {}), ("Log", {})]


@pytest.mark.parametrize("name", ["questions", "language model"])
def test_the_scores_of_tokens(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    file = case.ckpt
    rank = 3 if name == "language model" else 2
    for place in range(1 if rank == 3 else 2):
        file = extended(file, tmp_path / f"{place}.onnx", SOFTMAX, rank, output=place)
    assert case.value(file) == pytest.approx(known(name), rel=1e-4)
    labels = extended(case.ckpt, tmp_path / "l.onnx", [*chosen(-1, 1), TO_FLOAT], rank)
    with pytest.raises(TecoInferError, match="labels"):
        case.run(labels)


def test_a_voice_by_its_logit(tmp_path: Path) -> None:
    """The probability of the last layer's sums: a sigmoid is added where the graph ends without one."""
    case = CASES["voices"]
    assert case.value() > 0.5
    labels = extended(case.ckpt, tmp_path / "m.onnx", [("Greater", {"inputs": [np.float32(0.5)]}), TO_FLOAT], 2)
    with pytest.raises(ModelError, match="labels"):
        case.run(labels)


def test_clicks(tmp_path: Path) -> None:
    case = CASES["recommendation"]
    labels = extended(case.ckpt, tmp_path / "a.onnx", [("Round", {})], 1)
    with pytest.raises(ModelError, match="labels"):
        case.run(labels)
    wrong = extended(
        case.ckpt, tmp_path / "b.onnx", [("Identity", {})], 1, notes={"ctr_prediction": {"output": "logits"}}
    )
    with pytest.raises(ModelError, match=r"Sigmoid.*--output"):
        case.run(wrong)
    clipped: list[Step] = [("Clip", {"inputs": [np.float32(1e-6), np.float32(1 - 1e-6)]})]
    odds = extended(case.ckpt, tmp_path / "c.onnx", [*clipped, *log_odds()], 1)
    assert case.value(odds, output="logits") == pytest.approx(known("recommendation"), abs=1e-6)
    metric, _ = case.run(odds, output="logits")
    plain, _ = case.run()
    assert metric.secondary()["log_loss"] == pytest.approx(plain.secondary()["log_loss"], rel=1e-4)


def test_labels_of_speech_are_refused(tmp_path: Path) -> None:
    case = CASES["speech"]
    with pytest.raises(ModelError, match="labels"):
        case.run(extended(case.ckpt, tmp_path / "m.onnx", chosen(2), 2, kind=INT64))


def test_labels_of_lines_need_the_greedy_decoder(tmp_path: Path) -> None:
    case = CASES["ocr"]
    file = extended(case.ckpt, tmp_path / "m.onnx", chosen(2), 2, kind=INT64)
    with pytest.raises(ConfigError, match="--decoder"):
        case.run(file, decoder="beam")
    found = case.run(file, script="multi")[1]
    assert {one.answer["score"] for one in found} == {None}
    assert any(one.answer["text"] for one in found)
