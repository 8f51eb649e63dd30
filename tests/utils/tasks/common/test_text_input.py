"""Texts as a model's inputs: planned lengths, what is cut and said, pairs, texts on the command line, answers."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import bound, options

pytest.importorskip("tokenizers")
from small_tokenizers import KINDS, LINES

from engine import ConfigError, DataError, EngineSpec, InputError, ModelError, TensorSpec
from utils.datasets.base import ListDataset
from utils.pipeline.flags.options import options as parsed
from utils.pipeline.session import load_data
from utils.preprocess.text.lengths import count_truncated, planned, truncation_line
from utils.tasks.common.text_input import inline_texts, longest
from utils.tasks.model import Model
from utils.tasks.text_classification import TextClassification

IDS = TensorSpec("input_ids", np.dtype(np.int64), (None, None), batch_axis=0, symbols=("batch", "seq"))
NAMES = ("input_ids", "token_type_ids", "position_ids", "attention_mask")


@lru_cache(maxsize=4)
def tokenizer(kind: str) -> str:
    return KINDS[kind]().to_str()


def model(kind: str = "roberta", **metadata: Any) -> Model:
    notes = {"tokenizer": tokenizer(kind), **{name: json.dumps(value) for name, value in metadata.items()}}
    return Model(Path("m.onnx"), tuple(replace(IDS, name=name) for name in NAMES), metadata=notes)


def test_each_input_gets_its_own_and_ids_the_tokenizer_s_padding() -> None:
    given = replace(model("roberta"), dims={"seq": (8, 16, 64)})
    task = bound(TextClassification, given)
    ids, types, places, mask = task.collate([task.prepare([("The film", "Who wrote it?"), ("a", "b")])])
    assert ids.shape == (2, 16)
    lengths = mask.sum(1)
    assert (ids[1, lengths[1] :] == 1).all()  # RoBERTa's <pad>
    assert (types == 0).all()
    assert places[0, : lengths[0]].tolist() == list(range(lengths[0]))
    assert (places[1, lengths[1] :] == 0).all()
    bert = bound(TextClassification, model("word_piece")).prepare([("The film", "Who wrote it?")])
    assert max(bert.arrays[1][0]) == 1


def test_length_limits() -> None:
    free, opt = model(), options(TextClassification)
    assert longest(free, opt) == 0
    assert longest(free, options(TextClassification, max_length=9)) == 9
    assert longest(model(max_length=20), opt) == 20
    assert longest(model(max_length=20), options(TextClassification, max_length=30)) == 30
    assert longest(replace(model(max_length=20), dims={"seq": (8, 16)}), opt) == 16
    assert (
        longest(replace(free, inputs=(replace(IDS, shape=(None, 12)),)), options(TextClassification, max_length=30))
        == 12
    )
    assert longest(replace(free, dims={"seq": (8, 16)}), options(TextClassification, max_length=0)) == 0
    with pytest.raises(ModelError, match="metadata 'max_length': 'x'"):
        longest(model(max_length="x"), opt)


def test_plans_are_for_every_input() -> None:
    sizes = bound(TextClassification, None, lengths=[64, 16, 16], max_length=40).open_sizes()["model"]
    assert sizes == {(-1, 1): (16, 40)}
    assert bound(TextClassification, None, lengths=[16, 32], max_length=99).open_sizes()["model"] == {(-1, 1): (16, 32)}
    assert bound(TextClassification, None, lengths=None).open_sizes() == {}
    spec = EngineSpec("m.onnx", open_sizes=sizes).with_open_sizes([["b", "one"], ["b", "two"], ["b"], ["b", 5]])
    assert spec.dims == {"one": (16, 40), "two": (16, 40)}
    assert (planned(17, [16, 40]), planned(99, [16, 40]), planned(3, [])) == (40, 99, 3)


def test_truncation_is_reported_once() -> None:
    task, whole = bound(TextClassification, model(), max_length=9), bound(TextClassification, model())
    counts = task.warning_counts(task.prepare([LINES[0], "short", LINES[2]]).contexts)
    lost = sum(len(whole.prepare([text]).contexts[0].ids) - 9 for text in (LINES[0], LINES[2]))
    assert counts == {"cut_texts": 2, "cut_tokens": lost, "cut_texts_tokens_kept": 18}
    assert task.format_warnings(counts, 3) == [
        f"2 of 3 texts are longer than 9 tokens and were cut; {lost} tokens left out"
    ]
    assert task.format_warnings({}, 3) == []
    assert count_truncated(None) == {}
    one = {"cut_texts": 1, "cut_tokens": 1, "cut_texts_tokens_kept": 4}
    assert truncation_line(one, 1) == "1 of 1 text is longer than 4 tokens and was cut; 1 token left out"


def test_texts_on_the_command_line() -> None:
    assert inline_texts(options(TextClassification, "single")) is None
    found = inline_texts(options(TextClassification, "single", text=["one", "two  three"]))
    assert isinstance(found, ListDataset)
    assert (found.samples, found.names) == (["one", "two  three"], ["one", "two three"])
    pairs = inline_texts(options(TextClassification, "single", text=["one", "two"], pair=["x"]))
    assert isinstance(pairs, ListDataset)
    assert (pairs.samples, pairs.names) == ([("one", "x"), ("two", "x")], ["one | x", "two | x"])
    for given, said in (
        ({"text": [" "]}, "--text: "),
        ({"pair": ["x"]}, "give the first ones with --text"),
        ({"text": ["x"], "pair": ["y", "z"]}, "--pair has 2 texts and --text 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            inline_texts(options(TextClassification, "single", **given))


def test_inline_texts_replace_the_data() -> None:
    opt = parsed("x", TextClassification, "single", ["--ckpt", "m.onnx", "--text", "one"], data_path=Path("nowhere"))
    assert load_data(TextClassification(opt)).batch([0]).samples == ["one"]
    assert opt.data_path is None
    opt = parsed("x", TextClassification, "valid", ["--ckpt", "m.onnx", "--text", "one"], data_path=Path("nowhere"))
    with pytest.raises(ConfigError, match=r"--text .*example_single_batch"):
        load_data(TextClassification(opt))


def test_export_settings() -> None:
    pair = [("Ab", "Cd")]
    plain = bound(TextClassification, model("gpt2")).prepare(pair).arrays[0][0].tolist()
    stored = model("gpt2", text_classification={"case": "lower", "pair_order": "swapped"})
    changed = bound(TextClassification, stored).prepare(pair).arrays[0][0].tolist()
    assert changed == bound(TextClassification, model("gpt2")).prepare([("cd", "ab")]).arrays[0][0].tolist() != plain
    assert (
        bound(TextClassification, stored, case="kept", pair_order="given").prepare(pair).arrays[0][0].tolist() == plain
    )
    logits = np.log(np.array([[0.2, 0.3, 0.5]], np.float32))
    assert bound(TextClassification, model(), label_order="2,0,1").decode(logits, None)[0] == pytest.approx(
        [0.3, 0.5, 0.2]
    )
    with pytest.raises(InputError, match=r"--label_order 1,0: m\.onnx has 3 classes"):
        bound(TextClassification, model(), label_order="1,0").decode(logits, None)
    with pytest.raises(ModelError, match="case 'x' must be one of kept, lower"):
        bound(TextClassification, model(text_classification={"case": "x"})).prepare(pair)
    with pytest.raises(ModelError, match="vocabulary of words"):
        bound(TextClassification, Model(Path("m"), (IDS,), metadata={"vocabulary": '["<unk>"]'})).prepare(pair)


def test_reference_answers(tmp_path: Path) -> None:
    dataset, task = ListDataset(["x", "y"]), bound(TextClassification, model(class_labels=["no", "yes"]))
    (tmp_path / "a.tsv").write_text("label\tscore\nyes\t0.75\nno\t\n")
    found = task.reference_answers(tmp_path / "a.tsv", dataset)
    assert task.agreement(np.array([0.25, 0.75]), found[0]) == 1
    assert task.agreement(np.array([0.0, 1.0]), found[0]) == 0.75
    assert task.agreement(np.array([0.75, 0.25]), found[0]) == 0
    assert task.agreement(np.array([0.75, 0.25]), found[1]) == 1
    (tmp_path / "a.txt").write_text("1\nno\n")
    assert [one.place for one in task.reference_answers(tmp_path / "a.txt", dataset)] == [1, 0]
    for text, said in (("1\n", "1 answers .* 2 texts"), ("1\nyess\n", "a.txt:2: 'yess' is not a class")):
        (tmp_path / "a.txt").write_text(text)
        with pytest.raises(DataError, match=said):
            task.reference_answers(tmp_path / "a.txt", dataset)
    (tmp_path / "a.tsv").write_text("label\tscore\nyes\thigh\nno\t\n")
    with pytest.raises(DataError, match=r"a.tsv:2: score 'high' is not a number"):
        task.reference_answers(tmp_path / "a.tsv", dataset)
