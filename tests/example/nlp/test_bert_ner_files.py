"""The committed small BERT for entities: its files, its data, and its F1 on several targets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import ROOT, RunPython

from utils.datasets.synthetic.tagged_sentences import LABELS, names
from utils.datasets.text.tagged import load_tagged

FOLDER = ROOT / "example" / "nlp" / "bert_ner"
FILES = ("small_bert_ner_dyn.onnx", "small_bert_ner_float16_dyn.onnx", "small_bert_ner/model.safetensors")


def test_files_are_small_and_store_tags_and_tokenizer() -> None:
    from engine.onnx import load_model

    assert all((FOLDER / name).stat().st_size < 500_000 for name in FILES)
    kept = {entry.key: json.loads(entry.value) for entry in load_model(FOLDER / FILES[0]).metadata_props
            if entry.key in ("class_labels", "tokenizer", "max_length")}  # fmt: skip
    assert kept["class_labels"] == list(LABELS)
    assert kept["max_length"] == 128
    assert kept["tokenizer"] == json.loads((FOLDER / "small_bert_ner" / "tokenizer.json").read_text())


def test_held_out_names_are_unknown_to_the_tokenizer() -> None:
    known = set(json.loads((FOLDER / "small_bert_ner" / "tokenizer.json").read_text())["model"]["vocab"])
    found = load_tagged(FOLDER / "data" / "val.conll")
    words = {word.lower() for sentence in found.samples for word in sentence.words}
    for kind in ("FIRST", "LAST", "LOC", "JOB"):
        held_out = {name.lower() for name in names(kind, True)}
        assert held_out & known <= {"hall"}  # also a common word of the sentences
        assert held_out & words
        assert {name.lower() for name in names(kind, False)} <= known


def test_make_data_writes_the_committed_sentences() -> None:
    import numpy as np

    from utils.datasets.synthetic.tagged_sentences import tagged_sentence

    chance = np.random.default_rng(2)
    found = load_tagged(FOLDER / "data" / "val.conll")
    assert len(found) == 360
    for words, tags in [(tuple(one.words), own) for one, own in zip(found.samples, found.targets or (), strict=True)]:
        drawn = tagged_sentence(chance, 0.5)
        assert (drawn.words, drawn.tags) == (words, tags)


@pytest.mark.slow
@pytest.mark.long
def test_targets_agree_on_the_held_out_sentences(run_python: RunPython, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    figures = []
    for number, flags in enumerate((("--target", "onnx"), ("--target", "sdaa", "--ckpt", FOLDER / FILES[1]))):
        report = tmp_path / f"{number}.json"
        done = run_python(FOLDER / "example_valid.py", *flags, "--json", report)
        assert done.returncode == 0, done.stderr
        figures.append(json.loads(report.read_text())["metric"])
    assert figures[0] == pytest.approx(0.851658, abs=1e-6)
    assert figures[1] == pytest.approx(figures[0], abs=0.002)
