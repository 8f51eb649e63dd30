"""Tests of a case with several models and data sets, and one without data: from model.yaml to the scorecard."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rich")

from stub_model import Stub, write_zoo

from model_config.cases.changed import changed_cases
from model_config.cases.config import Case, Command
from model_config.check import main
from model_config.judge.scorecard import hash_data, hash_models
from model_config.run.key import case_key
from model_config.run.workplace import ignored_checkpoints
from tecoinfer_modelzoo.files import hash_files

CKPT = {"det": "det_float16.onnx", "rec": "rec_float16.onnx"}
DATA = {"answers": "data/answers.json", "corpus": "data/corpus"}


def reader(stub: Stub) -> None:
    """Make the stub one of two models and two data sets, whose metric is an error; one step has no data."""
    wanted = '    for name in ("det_float16", "rec_float16", "det"):\n        Path(f"{name}.onnx").write_text(name)'
    stub.script("export_onnx.py", '    Path("stub.onnx").write_text("stub")', wanted)
    for flag in ("--ckpt", "--data_path"):
        stub.script("example_valid.py", f'add_argument("{flag}"', f'add_argument("{flag}", nargs="+"')
    named = "    files = dict(word.split('=') for word in opt.ckpt)\n    print('models', json.dumps(files))"
    stub.script("example_valid.py", "    Path(opt.ckpt).read_text()", named)
    stub.script("example_valid.py", "Path(opt.data_path)", "Path(dict(w.split('=') for w in opt.data_path)['answers'])")
    stub.script("example_valid.py", '"metric": metric,', '"metric": metric, "higher_is_better": False,')
    for script in ("example_single_batch.py", "example_multi_batch.py"):
        stub.script(script, "Path(sys.argv[2]).read_text()", "print(sys.argv[1:])")
    stub.answers["seconds"] = 0.5  # stored host times may not match the current speed of this machine
    stub.files["data/corpus/a.txt"] = "a"
    for name in ("valid", "single", "multi"):
        params = stub.case[f"run_example_{name}"]["params"] = dict(stub.case[f"run_example_{name}"]["params"])
        params |= {"ckpt": CKPT, "data_path": DATA}
    del params["data_path"]  # of multi


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "zoo").mkdir()
    return tmp_path / "zoo"


def check(root: Path, *argv: str) -> tuple[dict[str, Any], Path]:
    out, work = root.parent / "out.json", root.parent / "work"
    assert main(["--json", str(out), "--work-dir", str(work), *argv], root=root) == 0
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found, work / "logs" / "reader"


@pytest.mark.slow
def test_the_check_of_a_case_of_two_models(root: Path) -> None:
    write_zoo(root, {"reader": reader})
    folder = root / "contrib/example/stubs/reader"
    (folder / "data/corpus").mkdir(parents=True, exist_ok=True)
    found, logs = check(root, "--update")
    assert found["cases"][0]["reasons"] == []
    # The baseline has a float32 twin of one of the models, and the other itself.
    (said,) = [line for line in (logs / "baseline.stdout").read_text().splitlines() if line.startswith("models ")]
    assert json.loads(said.removeprefix("models ")) == {"det": "det.onnx", "rec": "rec_float16.onnx"}
    multi = (logs / "multi.stdout").read_text()
    assert "'--ckpt', 'det=det_float16.onnx', 'rec=rec_float16.onnx', '--batch_size'" in multi
    assert "--data_path" not in multi
    metrics = yaml.safe_load((folder / "numerics.yaml").read_text())["metrics"]
    assert [one["target"] for one in metrics] == ["cpu", "onnx", "sdaa"]
    stored = metrics[-1]
    assert stored["higher_is_better"] is False
    files = {name: hashlib.sha256(Path(ckpt).stem.encode()).hexdigest() for name, ckpt in CKPT.items()}
    joined = "".join(f"{name}\0{found}\n" for name, found in files.items())
    assert stored["model_sha256"] == hashlib.sha256(joined.encode()).hexdigest()
    assert stored["data_sha256"] == hash_data(folder, DATA)
    again, _ = check(root)
    assert again["cases"][0]["verdict"] == "PASS"


def test_hashes_of_one_and_several_models(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    assert hash_models(tmp_path, {"model": "a"}) == hash_data(tmp_path, {"data": "a"}) == hash_files(tmp_path / "a")
    both = hash_models(tmp_path, {"det": "a", "rec": "b"})
    assert both == hash_models(tmp_path, {"rec": "b", "det": "a"})  # independent of the order
    assert len({both, hash_models(tmp_path, {"det": "b", "rec": "a"}), hash_models(tmp_path, {"det": "a"})}) == 3
    assert hash_models(tmp_path, {"det": "a", "rec": "gone"}) == ""
    assert hash_data(tmp_path, {"q": "a", "corpus": "gone"}) is None
    assert hash_data(tmp_path, {}) is None
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "\udcff").write_text("a name that is not UTF-8")
    assert hash_data(tmp_path, {"data": "odd"})


def test_every_model_and_every_data_set_counts(root: Path) -> None:
    for name in ("example/x/m/run.py", "shared/q.tsv", "corpus/c.tsv", "model_config/check.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    (root / ".gitignore").write_text("*.bin\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    paths = {"queries": "../../../shared/q.tsv", "corpus": "../../../corpus"}
    step = Command("valid", "run.py", {"ckpt": {"det": "a.bin", "rec": "deep/b.bin"}, "data_path": paths})
    case = Case("m", "example/x/m", (step, Command("multi", "run.py", {"ckpt": "c.bin"})), root / "model.yaml")
    assert ignored_checkpoints(case, root) == ["a.bin", "c.bin", "deep/b.bin"]
    keys = {case_key(case, root)}
    for name in ("shared/q.tsv", "corpus/c.tsv"):
        (root / name).write_text("x = 2\n")
        keys.add(case_key(case, root))
        touched, why = changed_cases([case], "HEAD", root)
        assert touched == [case]
        assert "which is its data" in why["m"]
        git(root, "checkout", "-q", name)
    assert len(keys) == 3


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)  # noqa: S607
