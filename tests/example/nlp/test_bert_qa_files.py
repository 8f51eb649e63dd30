"""The committed small BERT: what it answers to the held-out stories on several targets, and what its files are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import ROOT, RunPython

FOLDER = ROOT / "example" / "nlp" / "bert_qa"
FILES = ("small_bert_qa_dyn.onnx", "small_bert_qa_float16_dyn.onnx", "small_bert_qa/model.safetensors")


def test_files_are_small_and_store_the_tokenizer() -> None:
    from engine.onnx import load_model

    assert all((FOLDER / name).stat().st_size < 2_000_000 for name in FILES)
    kept = {entry.key: entry.value for entry in load_model(FOLDER / FILES[0]).metadata_props}
    assert json.loads(kept["question_answering"]) == {"no_answer": True}
    assert json.loads(kept["max_length"]) == 128
    assert json.loads(kept["tokenizer"]) == json.loads((FOLDER / "small_bert_qa" / "tokenizer.json").read_text())


@pytest.mark.slow
@pytest.mark.long
def test_targets_agree_on_the_held_out_stories(run_python: RunPython, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    answers, figures = [], []
    for number, flags in enumerate(
        (
            ("--target", "onnx"),
            ("--target", "sdaa", "--ckpt", FOLDER / FILES[1], "--batch_size", "32"),
            ("--target", "onnx", "--batch_size", "3", "--lengths", "128"),
        )
    ):
        report, saved = tmp_path / f"{number}.json", tmp_path / f"answers{number}.json"
        done = run_python(FOLDER / "example_valid.py", *flags, "--json", report, "--save_predictions", saved)
        assert done.returncode == 0, done.stderr
        figures.append(json.loads(report.read_text())["metric"])
        answers.append(json.loads(saved.read_text()))
    assert figures[0] == pytest.approx(0.496547, abs=1e-6)
    assert figures[1] == pytest.approx(figures[0], abs=0.01)
    assert figures[2] == pytest.approx(figures[0], abs=1e-6)
    same = [sum(answers[0][key] == other[key] for key in other) / len(answers[0]) for other in answers[1:]]
    assert same[0] > 0.98
    assert same[1] == 1
