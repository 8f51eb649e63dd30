"""The committed language model: small files, a licence, prose that was not learned, the README's metric."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import onnx
import pytest
from support import ROOT, RunPython

FOLDER = ROOT / "example" / "nlp" / "tiny_gpt"
PERPLEXITY = 25.7254


@pytest.fixture
def corpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the folder's ``corpus.py``; afterwards no module of this common name is left."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("corpus")
    sys.modules.pop("corpus", None)


def held_out() -> dict[str, str]:
    lines = (FOLDER / "data" / "heldout.jsonl").read_text(encoding="utf-8").splitlines()
    return {row["page"]: row["text"] for row in map(json.loads, lines)}


def test_the_files_are_small_and_have_their_licence() -> None:
    assert all((FOLDER / name).stat().st_size < 1_500_000 for name in ("tiny_gpt_dyn.onnx", "model.safetensors"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").iterdir()) < 200_000
    notes = {entry.key: entry.value for entry in onnx.load(FOLDER / "tiny_gpt_dyn.onnx").metadata_props}
    assert json.loads(notes["tokenizer"]) == json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (FOLDER / "LICENSE.python").read_text(encoding="utf-8")


def test_prose_extraction(corpus: ModuleType) -> None:
    text = """The "x" statement
*******************

   x_stmt ::= "x"

   It does what *nothing* else of
   this small language can do [1].

>>> it("does") and prints something long
It is done now, and for good, by this call.

Too short a line.

* A list's item, which is not a paragraph of the text at all.

See :func:`it` for what is described here in more words, and in another place as well::
"""
    assert corpus.prose(text) == [
        "It does what nothing else of this small language can do.",
        "See it for what is described here in more words, and in another place as well",
    ]


def test_modules_are_not_run(corpus: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        '"""One."""\nraise SystemExit\nclass A:\n    "Two."\n    async def f(): "Three."\n', encoding="utf-8"
    )
    assert corpus.documentation(path) == ["One.", "Two.", "Three."]


@pytest.mark.slow
@pytest.mark.long
def test_no_page_for_training_has_twelve_words_of_a_held_out_one(corpus: ModuleType) -> None:
    found = corpus.pages()
    kept = {name: text for name, text in found.items() if corpus.is_held_out(name)}
    words = set().union(*map(corpus._runs, kept.values()))
    learned = [line for name, text in found.items() if name not in kept for line in text.splitlines()]
    assert len(learned) > 3000
    assert [line for line in learned if not words.isdisjoint(corpus._runs(line))] == []
    assert len(set(learned)) == len(learned)
    if platform.python_version() == corpus.VERSION:
        assert kept == held_out()


def test_the_committed_pages_are_those_held_out(corpus: ModuleType) -> None:
    assert len(held_out()) == 42
    assert all(corpus.is_held_out(name) for name in held_out())
    assert len(set(held_out().values())) == 42


def test_a_prompt_on_the_command_line(run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    words = ("--target", "onnx", "--text", "This method returns", "--max_new_tokens", "6")
    done = run_python(FOLDER / "example_single_batch.py", *words)
    assert done.returncode == 0, done.stderr
    assert "This method returns  -> " in done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [("onnx",), ("sdaa", "--dtype", "float16"), pytest.param(("cpu", "--dtype", "int8"), marks=pytest.mark.long)],
)
def test_perplexity_equals_the_readme(words: tuple[str, ...], run_python: RunPython) -> None:
    pytest.importorskip("tokenizers")
    done = run_python(FOLDER / "example_valid.py", "--target", *words)
    assert done.returncode == 0, done.stderr
    (metric,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("eval_metric"))
    assert float(metric) == pytest.approx(PERPLEXITY, rel=0.005)
