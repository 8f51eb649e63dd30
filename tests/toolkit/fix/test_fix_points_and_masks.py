"""``teco fix --golden`` on models of key points and of instances: settings that an export stored wrongly are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from string import Template as Text
from typing import Any

import onnx
import pytest
from support import ROOT

from toolkit.cli import execute
from utils.pipeline import valid
from utils.tasks.find import tasks

WRONG: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "keypoints": ({"alignment": "ends", "channel_order": "BGR"}, {"alignment": "centre", "channel_order": "RGB"}),
    "instance_segmentation": ({"channel_order": "BGR"}, {"channel_order": "RGB"}),
}
"""By task: what the export stored, and what the source framework used."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrongly_stored_settings_are_found(name: str, tmp_path: Path) -> None:
    task, (stored, right) = tasks()[name], WRONG[name]
    assert task.template is not None
    words = {"model": "tiny", "title": "Tiny", "folder": "example/x/tiny", "install": "pip install ."}
    words |= {"paths": f'sys.path.insert(0, "{ROOT}")', **task.template.fill(tmp_path)}
    for file in task.template.folder.glob("*.py.tmpl"):
        text = Text(file.read_text(encoding="utf-8")).substitute(words)
        (tmp_path / file.name.removesuffix(".tmpl")).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "export_onnx.py"], cwd=tmp_path, check=True, capture_output=True)
    ckpt, golden, data = tmp_path / "tiny_dyn.onnx", tmp_path / "golden.json", tmp_path / "data"
    argv = ["--target", "onnx", "--save_predictions", str(golden)]
    assert valid.main(None, task, argv=argv, ckpt=ckpt, data_path=data, batch_size=8) == 0
    code, found = run_fix(name, ckpt, data, golden)
    assert (code, found["found"]) == (0, {})
    assert found["before"] == pytest.approx(1.0, abs=1e-3)

    model = onnx.load(ckpt)
    note: dict[str, Any] = next((json.loads(one.value) for one in model.metadata_props if one.key == "detection"), {})
    kept = [one for one in model.metadata_props if one.key != "detection"]
    props = {one.key: one.value for one in kept} | {"detection": json.dumps(note | stored)}
    onnx.helper.set_model_props(model, props)
    onnx.save(model, ckpt)
    code, found = run_fix(name, ckpt, data, golden)
    assert (code, found["found"]) == (0, right)
    assert found["store"] == {"detection": right}
    assert found["before"] < 0.9
    assert found["after"] == pytest.approx(1.0, abs=1e-3)


def run_fix(name: str, ckpt: Path, data: Path, golden: Path) -> tuple[int, dict[str, Any]]:
    file = ckpt.parent / "result.json"
    code = execute(
        ["fix", str(ckpt), "--data", str(data), "--task", name, "--golden", str(golden), "--json", str(file)]
    )
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return code, found
