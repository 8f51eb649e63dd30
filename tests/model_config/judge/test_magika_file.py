"""From the published file of magika to PASS with the task for any model: what the user writes is one short function.

The model tells the types of files by their first and last bytes. Its data here are files of this repository.
"""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from judged_case import JudgedCase
from support import ROOT

from engine import Array
from engine.onnx import load_model, signature
from model_config.cases.config import load_cases
from model_config.results import Verdict
from model_config.structure import check_structure
from toolkit.cli import execute
from toolkit.commands.new import main
from utils.fetch import FetchError, fetched

pytestmark = pytest.mark.slow

KINDS = {
    "python": "engine/**/*.py",
    "markdown": "docs/*.md",
    "json": "example/**/*.json",
    "yaml": "example/**/numerics.yaml",
    "png": "example/**/*.png",
    "jpeg": "example/**/*.jpg",
    "wav": "example/**/*.wav",
    "csv": "example/**/*.csv",
    "c": "tecoinfer_modelzoo/native/*.c",
}
"""Files of each type; the names are those of the model's classes."""

OF_EACH = 25


def model_input(content: bytes) -> Array:
    first, last = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full(2048, 256, np.int32)  # 256: no byte
    row[: len(first)] = list(first)
    row[2048 - len(last) :] = list(last)
    return row


@pytest.fixture
def folder() -> Path:
    try:
        return fetched("magika") / "magika" / "models" / "standard_v3_3"
    except FetchError as error:
        pytest.skip(f"magika cannot be fetched: {error}")


@pytest.fixture
def data(folder: Path, tmp_path: Path) -> Path:
    """The file of inputs and classes."""
    classes = json.loads((folder / "config.min.json").read_text())["target_labels_space"]
    (given,), (wanted,), _ = signature(load_model(folder / "model.onnx"))
    rows, labels = [], []
    for kind, pattern in KINDS.items():
        files = sorted(ROOT.glob(pattern))[:OF_EACH]
        rows += [model_input(one.read_bytes()) for one in files]
        labels += [classes.index(kind)] * len(files)
    np.savez(tmp_path / "val.npz", **{given.name: np.stack(rows), wanted.name: np.array(labels)})
    return tmp_path / "val.npz"


def judged(ckpt: Path, data: Path, root: Path, *more: str) -> JudgedCase:
    """Run `teco new` for a file and its data, and return the case."""
    root.mkdir()
    words = ["--ckpt", str(ckpt), "--data", str(data), "--default", "metric=top1", *more]
    assert main(["files", "magika", *words], root) == 0
    (case,) = load_cases([root / "model_config/model.yaml"], root)
    return JudgedCase(case, root.with_name(f"{root.name}_zoo"), root / case.run_dir)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*samples depend on one another")  # it slices the batch axis: one SPA
def test_the_published_file_passes_after_teco_fix(folder: Path, data: Path, tmp_path: Path) -> None:
    """A sum of squares exceeds float16, so the file as it is fails; `teco fix` writes what keeps it in float32."""
    pytest.importorskip("psutil")
    assert len(inspect.getsource(model_input).splitlines()) <= 10
    found = judged(folder / "model.onnx", data, tmp_path / "first").judge()
    assert found.verdict is Verdict.FAIL

    fixed = tmp_path / "fixed"
    words = ["--task", "arrays", "--data", str(data), "--out", str(fixed), "--", "--metric", "top1"]
    assert execute(["fix", str(folder / "model.onnx"), *words]) == 0
    case = judged(fixed / "model_mixed.onnx", data, tmp_path / "second", "--default", "pass_path=model_fix_pass.py")
    shutil.copy(fixed / "model_fix_pass.py", case.folder)
    assert [str(one) for one in check_structure(case.case, tmp_path / "second")] == []
    result = case.judge()
    (accuracy,) = result.accuracy
    assert result.verdict is Verdict.PASS, accuracy.reason
    assert (accuracy.differing, accuracy.metric) == (0, accuracy.reference)
    assert accuracy.metric > 0.9
