from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path

import pytest
from support import RunPython

from engine import available_targets, registry
from engine.host import installed

VENDORS = ("onnxruntime", "onnx", "openvino", "tensorrt", "polygraphy", "torch", "paddle")

VENDOR_FREE = f"""
import runpy, sys
sys.argv = ["engine", "--json"]
try:
    runpy.run_module("engine", run_name="__main__")
except SystemExit as end:
    assert not end.code
imported = [name for name in {VENDORS!r} if name in sys.modules]
assert not imported, imported
"""


def rows(text: str) -> dict[str, str]:
    cells = [line.split("|", 1) for line in text.splitlines() if "|" in line]
    return {name.strip(): value.strip() for name, value in cells}


def test_banner_lists_versions(run_python: RunPython) -> None:
    done = run_python("-m", "engine", TECO_SIM_CARDS="2", OMPI_COMM_WORLD_RANK="1", SDAA_VISIBLE_DEVICES="0,\n2")
    assert (done.returncode, done.stderr) == (0, "")
    shown = rows(done.stdout)
    assert shown["python"] == platform.python_version()
    assert shown["numpy"] == version("numpy")
    assert shown["sdaa"] == "built-in: the simulated T1 card"
    assert shown["MAX_ENGINE_NUMS"] == "4 (default)"
    assert (shown["TECO_SIM_CARDS"], shown["OMPI_COMM_WORLD_RANK"]) == ("2", "1")
    assert shown["SDAA_VISIBLE_DEVICES"] == "0, 2"
    assert int(shown["usable cores"]) >= 1
    for name in ("zoo", "openvino", "paddle"):
        found = installed.components()[name]
        assert shown[name] == (found or "not installed")
    if "cuda" not in available_targets():
        assert shown["cuda"].startswith('not available, run pip install -c constraints.txt -e ".[tensorrt]": ')


def test_a_setting_is_printed_with_its_control_characters_written_out(run_python: RunPython) -> None:
    done = run_python("-m", "engine", TECO_INFER_PIPELINES_MAX_STEPS="\x1b[31m\u202e\udcff", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout)["TECO_INFER_PIPELINES_MAX_STEPS"] == "\\x1b[31m\\u202e\\udcff"


def test_the_banner_imports_no_vendor_package(run_python: RunPython) -> None:
    done = run_python("-c", VENDOR_FREE)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema_version"] == 1


def test_json(run_python: RunPython) -> None:
    done = run_python("-m", "engine", "--json", MAX_ENGINE_NUMS="3")
    data = json.loads(done.stdout)
    assert (data["spa_per_card"], data["environment"]["MAX_ENGINE_NUMS"]) == (3, "3")
    assert data["components"]["numpy"] == version("numpy")
    available = [name for name, target in data["targets"].items() if target["available"]]
    assert available == available_targets()
    assert {name: target["install"] for name, target in data["targets"].items() if not target["available"]} == (
        registry.unavailable_targets()
    )


def test_a_setting_that_cannot_be_used_does_not_hide_the_rest(run_python: RunPython) -> None:
    done = run_python("-m", "engine", MAX_ENGINE_NUMS="many")
    assert done.returncode == 0
    assert rows(done.stdout)["MAX_ENGINE_NUMS"] == "many (invalid: must be a whole number from 1 to 8)"


def test_a_third_partys_target_is_named(tmp_path: Path, run_python: RunPython, root: Path) -> None:
    info = tmp_path / "teco_vendor-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teco-vendor\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tecoinfer.engines]\nsdaa = no_such_package:Engine\n")
    for name in ("onnxruntime_gpu", "tensorrt_cu12"):
        (tmp_path / f"{name}-9.8.dist-info").mkdir()
        (tmp_path / f"{name}-9.8.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.8\n"
        )
    shown = rows(run_python("-m", "engine", path=(root, tmp_path)).stdout)
    assert shown["sdaa"] == "teco-vendor 1.2"
    assert shown["onnxruntime"].endswith("9.8 (onnxruntime-gpu)")
    assert "9.8 (tensorrt-cu12)" in shown["tensorrt"]


def test_every_target_reports_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(registry.computes(name) for name in registry._BUILTIN)
    monkeypatch.setattr(registry, "_installed", lambda builtin: not builtin.needs)
    assert installed.targets()["cuda"] == {
        "available": False,
        "computes": registry.computes("cuda"),
        "install": 'pip install -c constraints.txt -e ".[tensorrt]"',
    }
