"""The committed language classifier: small files that say what they are, and the metric of the README."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter

import onnx
import pytest
from support import ROOT, RunPython

from utils.datasets.text.texts import load_texts

FOLDER = ROOT / "example" / "nlp" / "language_id"
FILES = ("language_id_dyn.onnx", "language_id_float16_dyn.onnx")


def test_files_are_small_and_have_metadata() -> None:
    assert all((FOLDER / name).stat().st_size < 1_500_000 for name in (*FILES, "language_id.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").iterdir()) < 1_000_000
    for name in FILES:
        notes = {entry.key: entry.value for entry in onnx.load(FOLDER / name).metadata_props}
        assert len(json.loads(notes["class_labels"])) == 5
        assert json.loads(notes["max_length"]) == 128
        stored, file = json.loads(notes["tokenizer"]), json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
        assert stored == file
        assert json.loads(notes["vocabulary_size"]) == len(file["model"]["vocab"])
    licences = (FOLDER / "LICENSES.md").read_text(encoding="utf-8")
    names = ("Allison Smith", "June Wallack", "Carlo Flora", "Silvia Petrin", "Maxim Topal")
    assert all(name in licences for name in ("CC BY-SA 3.0", "CC BY 3.0", *names))


def test_no_held_out_text_is_a_training_text() -> None:
    train, held_out = load_texts(FOLDER / "data" / "train.tsv"), load_texts(FOLDER / "data" / "val.tsv")
    assert (len(train), len(held_out)) == (1461, 555)
    assert not set(train.samples) & set(held_out.samples)
    assert max(Counter(held_out.samples).values()) == 1
    assert set(train.targets or ()) == set(held_out.targets or ())


def test_similar_texts_are_in_one_part_and_one_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    alike = importlib.import_module("make_data").alike
    sys.modules.pop("make_data")
    assert alike("¿Dónde está, Mamá?") == alike("donde esta mama")
    parts = [load_texts(FOLDER / "data" / name) for name in ("train.tsv", "val.tsv")]
    found = [alike(text) for part in parts for text in part.samples]
    assert len(set(found)) == len(found)
    assert not any(set("()[]<>\ufffd") & set(text) for part in parts for text in part.samples)


def test_a_sentence_on_the_command_line(run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    text = "Il treno per l'aeroporto parte fra dieci minuti."
    done = run_python(FOLDER / "example_single_batch.py", "--target", "onnx", "--text", text)
    assert done.returncode == 0, done.stderr
    assert f"{text}  Italian  " in done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("words", [("onnx",), ("sdaa", "--dtype", "float16"), ("cpu", "--dtype", "int8")])
def test_metric_equals_the_readme(words: tuple[str, ...], run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    done = run_python(FOLDER / "example_valid.py", "--target", *words)
    assert done.returncode == 0, done.stderr
    (metric,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("eval_metric"))
    assert float(metric) == pytest.approx(0.9243, abs=0.002)
