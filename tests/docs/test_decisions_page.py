"""``docs/explanation/decisions.md``: its flags are the tasks', its words the source's, its code does what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support import DIGITS, ROOT

from engine.onnx import KINDS
from utils.outputs import LAYOUTS
from utils.tasks.find import tasks

PAGE = (ROOT / "docs" / "explanation" / "decisions.md").read_text(encoding="utf-8")
COMMON = {"--dtype", "--target", "--dim", "--golden", "--json", "--input_size"}
"""Flags that all scripts have, and those of tools."""


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_the_flags_are_the_tasks() -> None:
    known = {flag.name for task in tasks().values() for flag in task.flags} | COMMON
    named = set(re.findall(r"--[a-z_]+", PAGE))
    assert named - known == set()
    assert {"--output_kind", "--output_layout"} <= named


def test_every_kind_and_layout_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Output kind"), re.MULTILINE)
    assert set(KINDS) <= set(rows)
    assert all(f"`{layout}`" in section("Layout of outputs") for layout in LAYOUTS)


@pytest.mark.parametrize("title", ["Batch axis", "Output kind", "Layout of outputs", "Normalisation"])
def test_every_decision_can_be_overruled(title: str) -> None:
    assert re.search(r"overrule|flag \|", section(title))


def test_metadata_are_added_as_the_page_does_it(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shutil.copyfile(DIGITS / "digits_dyn.onnx", tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "model.onnx")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = {one.key: json.loads(one.value) for one in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert found["outputs"] == {"output": {"kind": "logits"}}
    assert found["preprocess"]["mean"] == [0.5, 0.5, 0.5]
