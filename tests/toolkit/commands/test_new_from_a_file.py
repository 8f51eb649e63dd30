"""``teco new --ckpt``: a folder for a model file that exists; nothing is written on an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine import ConfigError, DataError, ModelError
from model_config.cases.config import read_cases
from model_config.structure import check_structure
from toolkit.commands.new import main
from toolkit.scaffold import LONGEST, Given, create
from utils.pipeline.cli import call_of
from utils.tasks.arrays.task import Arrays
from utils.tasks.templates import sample_arrays
from utils.tasks.templates.sample_arrays import MOST_COMMITTED

LONG = "a" * LONGEST


def model(folder: Path, size: int = 3, external: bool = False) -> Path:
    """Write a model with a weight of ``size`` x ``size``."""
    weight = numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = folder / "given.onnx"
    onnx.save(made, file, save_as_external_data=external, size_threshold=0, location="given.data")
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def calls(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: call_of(folder / f"example_{name}.py").defaults for name in ("valid", "single_batch", "multi_batch")}


def test_flags_of_the_scripts(root: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", x=np.ones((2, 3), np.float32), y=np.ones((2, 3), np.float32))
    words = ["metric=y=mae", "pad=0", "tolerance=0.5", "dim=time=3,5", "streams=2"]
    words = [part for word in words for part in ("--default", word)]
    ckpt = ["--ckpt", str(model(tmp_path))]
    assert main(["things", "mine", *ckpt, "--data", str(tmp_path / "v.npz"), *words], root) == 0
    folder = root / "example/things/mine"
    found = calls(folder)
    own = {"ckpt": folder / "mine.onnx", "data_path": folder / "data/v.npz", "pad": 0.0, "dim": ["time=3,5"]}
    assert found["valid"] == {**own, "batch_size": 16, "metric": ["y=mae"], "tolerance": 0.5, "streams": 2}
    assert found["single_batch"] == {**own, "batch_size": 1}
    assert found["multi_batch"] == {**own, "batch_size": 16}
    assert call_of(folder / "example_valid.py").task is Arrays


def test_without_data_the_samples_are_random(root: Path, tmp_path: Path) -> None:
    create("things", "mine", task="arrays", root=root, given=Given(model(tmp_path)))
    create("things", "other", task="arrays", root=root, given=Given(model(tmp_path), defaults=("random=7",)))
    for name, count in (("mine", 64), ("other", 7)):
        found = calls(root / "example/things" / name)
        assert {one["random"] for one in found.values()} == {count}
        assert not any("data_path" in one for one in found.values())


def test_data_with_expected_arrays_beside_and_folders(root: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((2, 3)))
    np.save(tmp_path / "v.expected.npy", np.ones((2, 3)))
    np.save(tmp_path / "w.npy", np.ones((2, 3)))
    create("things", "file", task="arrays", root=root, given=Given(model(tmp_path), (tmp_path / "v.npy",)))
    data = root / "example/things/file/data"
    assert sorted(path.name for path in data.iterdir()) == ["v.expected.npy", "v.npy"]
    create("things", "folder", task="arrays", root=root, given=Given(model(tmp_path), (data,)))
    found = root / "example/things/folder"
    assert sorted(path.name for path in (found / "data").iterdir()) == ["v.expected.npy", "v.npy"]
    assert calls(found)["valid"]["data_path"] == found / "data"


@pytest.mark.slow
@pytest.mark.parametrize("data", [True, False])
def test_structure_and_lint(data: bool, root: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", x=np.ones((2, 3), np.float32), y=np.ones((2, 3), np.float32))
    given = Given(model(tmp_path), (tmp_path / "v.npz",) if data else (), ("metric=y=mae",))
    made = create(LONG, LONG, task="arrays", contrib=True, root=root, given=given)
    (case,), problems = read_cases([root / made.config], root)
    assert not problems
    assert [str(found) for found in check_structure(case, root)] == []
    (root / "pyproject.toml").write_bytes((Path(__file__).parents[3] / "pyproject.toml").read_bytes())
    for command in (["check"], ["format", "--check"]):
        line = [sys.executable, "-m", "ruff", *command, root / made.folder]
        linted = subprocess.run(line, cwd=root, capture_output=True, check=False)
        assert linted.returncode == 0, linted.stdout


def test_the_export_checks_the_file(root: Path, tmp_path: Path) -> None:
    create("things", "mine", task="arrays", root=root, given=Given(model(tmp_path, external=True)))
    folder = root / "example/things/mine"
    assert not list(folder.glob("*.data")), "small weights are in the file"

    def export(*words: str) -> tuple[int, str]:
        line = [sys.executable, "export_onnx.py", *words]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert export() == (0, "")
    kept = (folder / "mine.onnx").rename(tmp_path / "kept.onnx")
    code, words = export()
    assert code == 2
    assert "--weights FILE" in words
    assert export("--weights", str(kept)) == (0, "")
    model(tmp_path, size=4)
    code, words = export("--weights", str(tmp_path / "given.onnx"))
    assert code == 2
    assert words.count("\n") == 1


def test_a_file_of_a_package_is_fetched_by_the_export(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_arrays, "fetched_path", {Path("fetch:some/given.onnx"): model(tmp_path)}.__getitem__)
    create("things", "mine", task="arrays", root=root, given=Given(Path("fetch:some/given.onnx")))
    (case,), problems = read_cases([root / "model_config/model.yaml"], root)
    assert not problems
    assert {step.name: step.params for step in case.steps}["export"] == {"weights": "fetch:some/given.onnx"}
    folder = root / "example/things/mine"
    assert not (folder / ".gitignore").exists()
    assert "--weights fetch:some/given.onnx" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("size", "committed"), [(3, True), (800, False)])
def test_only_a_small_file_is_excepted_from_gitignore(size: int, committed: bool, root: Path, tmp_path: Path) -> None:
    (root / ".gitignore").write_text("*.onnx\n")
    create("things", "mine", task="arrays", root=root, given=Given(model(tmp_path, size)))
    file = root / "example/things/mine/mine.onnx"
    assert (file.stat().st_size <= MOST_COMMITTED) == committed
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)  # noqa: S607
    line = ["git", "check-ignore", "-q", str(file)]
    assert (subprocess.run(line, cwd=root, check=False).returncode == 1) == committed


@pytest.mark.parametrize(
    ("task", "given", "error", "words"),
    [
        ("classification", {}, ConfigError, ["'classification'", "--ckpt", "--task arrays"]),
        ("arrays", {"ckpt": "missing.onnx"}, ModelError, ["missing.onnx"]),
        ("arrays", {"data": ("missing.npz",)}, DataError, ["missing.npz", "does not exist"]),
        ("arrays", {"defaults": ("metrik=rmse",)}, ConfigError, ["'metrik=rmse'", "did you mean 'metric'"]),
        ("arrays", {"defaults": ("metric",)}, ConfigError, ["'metric'", "FLAG=VALUE"]),
        ("arrays", {"defaults": ("random=many",)}, ConfigError, ["'random=many'"]),
        ("arrays", {"defaults": ("batch_size=4",)}, ConfigError, ["'batch_size=4'"]),
        ("arrays", {"defaults": ("seed=1", "seed=2")}, ConfigError, ["seed", "2 times"]),
    ],
)
def test_nothing_is_written_on_an_error(
    task: str, given: dict[str, Any], error: type[Exception], words: list[str], root: Path, tmp_path: Path
) -> None:
    paths = {key: tuple(map(tmp_path.joinpath, value)) for key, value in given.items() if key == "data"}
    ckpt = tmp_path / given["ckpt"] if "ckpt" in given else model(tmp_path)
    with pytest.raises(error) as caught:
        create(
            "things",
            "mine",
            task=task,
            root=root,
            given=Given(ckpt, **{**paths, "defaults": given.get("defaults", ())}),
        )
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
    assert tree(root) == set()


def test_data_needs_a_model(root: Path) -> None:
    for words in (["--data", "v.npz"], ["--default", "metric=rmse"]):
        with pytest.raises(ConfigError, match="--ckpt"):
            main(["things", "mine", *words], root)
    assert tree(root) == set()
