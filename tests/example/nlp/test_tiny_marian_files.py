"""The committed tiny Marian: its files, that no held-out text is in training, and what a memory of phrases gives."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from support import ROOT, RunPython

from utils.datasets.text.parallel import load_pairs

FOLDER = ROOT / "example" / "nlp" / "tiny_marian"
PARTS = ("encoder", "decoder")


def plain(text: str) -> str:
    """Return a text without case, accents and punctuation."""
    letters = unicodedata.normalize("NFD", text.lower())
    return " ".join(re.findall(r"\w+", "".join(one for one in letters if not unicodedata.combining(one))))


def test_files_are_small_and_store_both_tokenizers() -> None:
    from engine.onnx import load_model

    for part, name in zip(PARTS, ("tokenizer.json", "target_tokenizer.json"), strict=True):
        for form in ("dyn", "float16_dyn"):
            file = FOLDER / f"tiny_marian_{part}_{form}.onnx"
            assert file.stat().st_size < 600_000
            kept = {entry.key: entry.value for entry in load_model(file).metadata_props}
            assert json.loads(kept["tokenizer"]) == json.loads((FOLDER / "tiny_marian" / name).read_text())
        if part == "decoder":
            stored = json.loads(kept["translation"])
            assert stored == {"start": [2], "end": 0, "suppress": [2], "positions": 96}


def test_no_held_out_text_is_in_training() -> None:
    train, held_out = (load_pairs({"data": FOLDER / "data" / name}) for name in ("train.tsv", "val.tsv"))
    assert (len(train), len(held_out)) == (278, 79)
    for column in ("samples", "targets"):
        texts = [
            {plain(one if isinstance(one, str) else one[0]) for one in getattr(data, column)}
            for data in (train, held_out)
        ]
        assert not texts[0] & texts[1]


@pytest.mark.slow
def test_the_baselines_are_those_of_the_readme(run_python: RunPython) -> None:
    pytest.importorskip("sacrebleu")
    done = run_python(FOLDER / "baselines.py")
    assert done.returncode == 0, done.stderr
    figures = re.findall(r"BLEU ([\d.]+), chrF ([\d.]+)", done.stdout)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(figures) == 2
    assert all(f"| {bleu} | {chrf} |" in readme for bleu, chrf in figures)
