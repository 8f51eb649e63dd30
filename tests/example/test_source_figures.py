"""The scripts that evaluate the source framework's model compute the figures in the cases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, RunPython

from utils.fetch import UnreachableError, fetched

PACKAGES = {"silero_vad": "silero_vad", "prompts_ctc": "voices_en", "centerface": "centerface"}
"""What the cases fetch."""


def cases() -> Iterator[tuple[str, Path, str, float]]:
    """Yield name, folder, script and figure of each case whose figure a script of its own computes."""
    for case in yaml.safe_load((ROOT / "model_config" / "model.yaml").read_text(encoding="utf-8")):
        rule: dict[str, Any] = case.get("accuracy") or {}
        script = re.match(r"eval_\w+\.py", rule.get("reference_source", ""))
        if script:
            folder = ROOT / case["run_dir"].removeprefix("TecoInference/")
            yield case["case_name"], folder, script[0], rule["reference"]


def test_every_such_script_is_the_source_of_a_figure() -> None:
    named = {folder / script for _, folder, script, _ in cases()}
    assert named == set(ROOT.glob("example/*/*/eval_*.py"))
    assert {name for name, *_ in cases()} == {
        "bert_ner",
        "bert_qa",
        "centerface",
        "keypad_words",
        "prompts_ctc",
        "silero_vad",
    }


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("name", "folder", "script", "wanted"), list(cases()), ids=[name for name, *_ in cases()])
def test_the_script_computes_the_figure(
    name: str, folder: Path, script: str, wanted: float, run_python: RunPython, tmp_path: Path
) -> None:
    """A prediction or two may change on a machine that computes otherwise: 0.2 % of the figure."""
    pytest.importorskip("torch" if script == "eval_pytorch.py" else "cv2")
    if name == "bert_qa":
        pytest.importorskip("tokenizers")
    try:
        if name in PACKAGES:
            fetched(PACKAGES[name])
    except UnreachableError as error:
        pytest.skip(f"the files cannot be fetched: {error}")
    ckpt: list[str | Path] = []
    if name == "centerface":
        made = run_python(folder / "export_onnx.py", "--forms", "dyn", "--out", tmp_path)
        assert made.returncode == 0, made.stderr
        ckpt = ["--ckpt", tmp_path / "centerface_dyn.onnx"]
    done = run_python(folder / script, *ckpt, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["target"] == script.removeprefix("eval_").removesuffix(".py")
    assert report["finished"]
    assert report["metric"] == pytest.approx(wanted, rel=2e-3)
