"""The notebooks: stored with small outputs and without paths; they run from nothing, and print what is stored."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import ROOT

FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def execute() -> ModuleType:
    loader = SourceFileLoader("execute_notebooks", str(FOLDER / "execute.py"))
    spec = importlib.util.spec_from_loader("execute_notebooks", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_stored_outputs_are_small_and_of_no_computer(path: Path, execute: ModuleType) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < execute.LARGEST
    assert json.loads(text)["metadata"] == execute.METADATA
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))  # in order, from nothing
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert printed
    assert not re.findall(r"(?<![\w.])/(?:tmp|home|root|work|usr|opt)/|\d ms\b|\d s\b|127\.0\.0\.1:\d", printed)
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", "".join("".join(cell["source"]) for cell in cells(path)))
    assert len(links) >= 2
    for link in links:
        assert (FOLDER / link).is_file(), link


def notebook(*outputs: dict[str, Any]) -> Any:
    nbformat = pytest.importorskip("nbformat")
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": "1", "execution_count": 1, "outputs": [*outputs]}
    return nbformat.from_dict({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def test_differences_and_paths_are_reported(execute: ModuleType) -> None:
    image = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "AAAA", "text/plain": "<Figure>"}}
    other = {**image, "data": {"image/png": "BBBB", "text/plain": "<Figure>"}}
    assert list(execute._different(notebook(image), notebook(other))) == []
    found = list(execute._different(notebook(stream("F1 0.85\n")), notebook(stream("F1 0.84\n"))))
    assert [line.split()[-1] for line in found if re.search(r": [+-]F1", line)] == ["0.85", "0.84"]
    problems = list(execute._wrong(notebook(stream(f"{ROOT}/x.onnx\n")), ""))  # two for a clone in the temporary folder
    assert any(f"the path {ROOT}" in problem for problem in problems)
    (problem,) = execute._wrong(notebook(stream("UserWarning\n", "stderr")), "")
    assert "standard error" in problem
    (problem,) = execute._wrong(notebook(), "x" * 200_001)
    assert "200001 bytes" in problem


def test_pieces_of_printed_text_are_joined_and_times_left_out(execute: ModuleType) -> None:
    made = notebook(stream("a\n"), stream("b\n"), stream("c\n", "stderr"))
    made.cells[0].metadata = {"execution": {"iopub.status.busy": "2026-01-01"}}
    execute._clean(made)
    assert [(output.name, output.text) for output in made.cells[0].outputs] == [("stdout", "a\nb\n"), ("stderr", "c\n")]
    assert made.cells[0].metadata == {}


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "execute.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)


@pytest.mark.slow
@pytest.mark.long
def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package)
    made = notebook()
    made.cells[0].source = "print(1)\n{}['missing']"
    file = tmp_path / "fails.ipynb"
    file.write_text(json.dumps(made))
    before = file.read_bytes()
    done = run(file)
    assert done.returncode == 1
    assert "fails.ipynb: cell 1: KeyError: 'missing'" in done.stderr
    assert "Traceback" not in done.stderr
    assert file.read_bytes() == before
    assert run(tmp_path / "absent.ipynb").returncode == 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored(path: Path) -> None:
    for package in ("nbclient", "ipykernel", "matplotlib", "torch", "fastapi", "tokenizers"):
        pytest.importorskip(package)
    done = run("--check", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{path.name}: the same\n"
