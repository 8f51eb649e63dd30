"""``teco fix`` says what a case needs, and takes files of packages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fetch_archives import row, serving, simple_page, table_row, wheel
from support import ROOT, SaveOnnx

from engine import ConfigError
from model_config.cases.config import load_cases
from toolkit.commands import fix
from toolkit.graph.inputs import model_file
from utils.fetch import FetchError
from utils.tasks.find import add_contrib

NORM = """g (float[N,6] x) => (float[N,6] y)
<float big = {600.0}, int64[1] last = {1}>
{ scaled = Mul(x, big)  square = Mul(scaled, scaled)  mean = ReduceMean<axes = [1], keepdims = 1>(square)
  root = Sqrt(mean)  y = Div(scaled, root) }"""

SCRIPT = """\
from utils.pipeline import cli
from utils.tasks.arrays.task import Arrays

if __name__ == "__main__":
    cli.valid(Arrays, ckpt="norm.onnx", data_path="data/rows.npz", batch_size=8, metric=["top1"])
"""


@pytest.fixture
def norm(save_onnx: SaveOnnx) -> Path:
    return save_onnx(NORM)


def rows() -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).uniform(0.5, 2, (24, 6)).astype(np.float32)
    return {"x": x, "y": x.argmax(axis=1)}


@pytest.mark.slow
def test_lines_for_the_case_of_a_model(norm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "zoo" / "example" / "things" / "norm"
    (folder / "data").mkdir(parents=True)
    shutil.copy(norm, folder / "norm.onnx")
    np.savez(folder / "data" / "rows.npz", **rows())
    (folder / "example_valid.py").write_text(SCRIPT, encoding="utf-8")
    params = {"ckpt": "norm.onnx", "batch_size": 8, "data_path": "data/rows.npz", "target": "sdaa", "dtype": "float16"}
    step: dict[str, Any] = {"run_file": "example_valid.py", "params": params}
    case: dict[str, Any] = {"case_name": "norm", "run_dir": "TecoInference/example/things/norm"}
    (folder / "export_onnx.py").write_text("", encoding="utf-8")
    case["run_export"] = {"run_file": "export_onnx.py"}
    case |= {f"run_example_{name}": step for name in ("valid", "single", "multi")}
    config = tmp_path / "zoo" / "model_config" / "model.yaml"
    config.parent.mkdir()
    config.write_text(yaml.safe_dump([case], sort_keys=False), encoding="utf-8")
    out, result = tmp_path / "out", tmp_path / "fix.json"
    assert fix.main(["norm", "--out", str(out), "--tolerance", "0.02", "--json", str(result)], tmp_path / "zoo") == 0
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found["verdict"] == "fixed"
    (line,) = (note for note in found["notes"] if note.startswith("for case norm"))
    assert "model_config/model.yaml:1" in line
    assert f"cp {out / 'norm_fix_pass.py'}" in line
    assert "others: {pass_path: norm_fix_pass.py}" in line
    # What the line says makes a case that can be read.
    shutil.copy(out / "norm_fix_pass.py", folder)
    step["params"] = {**params, "others": {"pass_path": "norm_fix_pass.py"}}
    config.write_text(yaml.safe_dump([case], sort_keys=False), encoding="utf-8")
    (read,) = load_cases([config], tmp_path / "zoo")
    assert all("norm_fix_pass.py" in step.arguments for step in read.steps[1:])


@pytest.mark.slow
def test_a_file_gets_the_flag_of_the_scripts(norm: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", **rows())
    out, result = tmp_path / "out", tmp_path / "fix.json"
    words = [str(norm), "--data", str(tmp_path / "data.npz"), "--metric", "close", "--tolerance", "0.02"]
    assert fix.main([*words, "--out", str(out), "--json", str(result)]) == 0
    notes = json.loads(result.read_text(encoding="utf-8"))["notes"]
    assert any(f"--pass_path {out / f'{norm.stem}_fix_pass.py'}" in note for note in notes)


def test_files_of_packages_are_taken(norm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "data.npz", **rows())
    files = {"mine/model/norm.onnx": norm.read_bytes(), "mine/model/data.npz": (tmp_path / "data.npz").read_bytes()}
    pages = tmp_path / "pages"
    pages.mkdir()
    archive = wheel(pages, files)
    simple_page(pages, archive)
    shutil.copytree(ROOT / "contrib" / "utils", tmp_path / "contrib" / "utils")
    table = tmp_path / "contrib" / "utils" / "fetch" / "mine.yaml"
    table.write_text(
        yaml.safe_dump([table_row(row(archive, unpacked=sum(map(len, files.values()))))]), encoding="utf-8"
    )
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))
    with serving(pages) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        add_contrib(tmp_path)
        path = model_file("fetch:mine/mine/model/norm.onnx", tmp_path)
        assert path.read_bytes() == norm.read_bytes()
        words = ["fetch:mine/mine/model/norm.onnx", "--data", "fetch:mine/mine/model/data.npz", "--metric", "close"]
        result = tmp_path / "fix.json"
        out = ["--out", str(tmp_path / "out"), "--json", str(result), "--tolerance", "0.9"]
        assert fix.main([*words, *out], tmp_path) in (0, 1)
        assert json.loads(result.read_text(encoding="utf-8"))["facts"]["data"] == "fetch:mine/mine/model/data.npz"
        with pytest.raises(FetchError, match=r"nothing\.onnx"):
            model_file("fetch:mine/mine/model/nothing.onnx", tmp_path)
    with pytest.raises(ConfigError, match="unknown package 'unheard'"):
        model_file("fetch:unheard/x.onnx", tmp_path)
