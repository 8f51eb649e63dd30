"""Tests of the result cache: contents of the key, and damaged results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from support import DIGITS

from model_config.cases.config import AccuracyRule, Case, Command
from model_config.results import Accuracy, CaseResult, Drawn, Finding, Speed, StepResult, Verdict
from model_config.run.cache import KIND, load, store
from model_config.run.key import Shared, case_key
from utils.fetch import find_package

PARAMS = {"ckpt": "m.onnx", "batch_size": 4, "data_path": "data", "target": "onnx", "dtype": "float32"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / KIND


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    for name, text in {
        "example/x/m/valid.py": "import engine\n",
        "example/x/m/README.md": "# m\n",
        "example/x/m/data/1.png": "png",
        "example/x/m/m.onnx": "made by the export",
        "engine/__init__.py": "from engine.base import x\n",
        "engine/base.py": "x = 1\n",
        "engine/unused.py": "",
        "model_config/check.py": "",
        "shared/2.png": "png",
        ".gitignore": "*.onnx\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/3.png").write_text("png")
    (root / "example/x/m/linked").symlink_to(tmp_path / "disk")
    subprocess.run(["git", "init", "-q", str(root)], check=True)  # noqa: S607
    return root


def case(**params: str) -> Case:
    steps = (Command("valid", "valid.py", PARAMS), Command("multi", "valid.py", PARAMS | params))
    return Case("m", "example/x/m", steps, Path("model.yaml"))


def write(name: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text("x = 2\n")

    return change


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (write("example/x/m/valid.py"), False),
        (write("example/x/m/README.md"), False),
        (write("example/x/m/data/1.png"), False),
        (write("example/x/m/data/new.png"), False),
        (write("example/x/m/perf.yaml"), False),
        (write("engine/base.py"), False),
        (write("model_config/check.py"), False),
        (write("model_config/deep/down.py"), False),
        (write("shared/2.png"), False),
        (write("../disk/3.png"), False),
        (write("../disk/deep/4.png"), False),
        (lambda root: (root / "example/x/m/data/1.png").rename(root / "example/x/m/data/2.png"), False),
        (write("example/x/m/m.onnx"), True),
        (write("example/x/m/__pycache__/x.pyc"), True),
        (write("engine/unused.py"), True),
        (write("README.md"), True),
        (lambda root: os.utime(root / "example/x/m/valid.py", (1, 1)), True),
    ],
)
def test_the_key_follows_the_contents(root: Path, change: Callable[[Path], None], same: bool) -> None:
    one = case(data_path="../../../shared")
    before = case_key(one, root)
    assert len(before) == 64
    assert case_key(one, root) == before
    change(root)
    assert (case_key(one, root) == before) is same


def test_the_key_follows_the_case_the_flags_and_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = case()
    keys = {
        case_key(one, root),
        case_key(replace(one, accuracy=AccuracyRule(0.002)), root),
        case_key(case(dtype="float16"), root),
        case_key(one, root, flags={"timeout": 5}),
        case_key(case(data_path=str(root.parent / "disk")), root),
    }
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    keys.add(case_key(one, root))
    assert len(keys) == 6
    monkeypatch.delenv("MAX_ENGINE_NUMS")
    before = case_key(case(data_path=str(root.parent / "disk")), root)
    assert before in keys
    (root.parent / "disk/3.png").write_text("another")
    assert case_key(case(data_path=str(root.parent / "disk")), root) not in keys
    assert case_key(replace(one, source=Path("elsewhere.yaml"), line=9), root) == case_key(one, root)
    monkeypatch.setenv("TECO_CACHE_DIR", "elsewhere")
    assert case_key(one, root) == case_key(replace(one, line=3), root)


def test_the_key_follows_packages(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package's row is part of the key; whether it is downloaded is not, so the first check's result is found."""
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))
    one = case(data_path="fetch:minilm/folder")
    before = case_key(one, root)
    package = find_package("minilm")
    folder = tmp_path / "kept" / "minilm" / package.key
    (folder / "folder").mkdir(parents=True)
    folder.with_name(f"{package.key}.sizes.json").write_text("{}")
    assert case_key(one, root) == before
    shared = Shared(root)
    shared.__dict__["packages"] = {"minilm": replace(package, version="0")}
    assert case_key(one, root, shared=shared) != before
    assert case_key(case(data_path="fetch:no_such_package/folder"), root) != before


def complete(logs: Path) -> CaseResult:
    """Return a storable result with values in every field except the findings, and its logs."""
    logs.mkdir()
    for name in ("valid.stdout", "valid.stderr", "valid.json", "valid.samples.csv", "single.stdout", "single.stderr"):
        (logs / name).write_text(f"content of {name}")
    (logs / "single.images").mkdir()
    (logs / "single.images/a.png").write_bytes(b"\x89PNG")
    for name in ("differing", "differing-baseline"):
        (logs / f"{name}.images").mkdir()
        (logs / f"{name}.images/a.png").write_text(name)
    valid = StepResult(
        "m", "valid", ("python", "x.py"), True, 1.5, 0, "", logs / "valid.stdout", logs / "valid.stderr", 0.75, 123,
        logs / "valid.json",
    )  # fmt: skip
    single = StepResult(
        "m", "single", ("python",), True, 0.5, 0, "", logs / "single.stdout", logs / "single.stderr",
        images=(logs / "single.images/a.png",),
    )  # fmt: skip
    return CaseResult(
        "m", "example/x/m", "onnx", (), (valid, single),
        (Accuracy(Verdict.INCONCLUSIVE, "too few", "onnx", "top-1", 0.75, 0.76, -0.01, 0.001, 360, 300, 3, ("a.png",),
                  1, 2, "counts", (-0.1, 0.1), 0.1, 9000),
         Accuracy(Verdict.PASS, "", "source", "top-1", 1.0, 1.0, 0.0, 0.01)),
        (Speed(Verdict.PASS, "", "simulated latency", 1.0, "ms", 1.1, 0.9, "same"),),
        2.5, partial="the first 360 samples", notes=("a note",),
        drawn=(Drawn("a", "text", "1", "2", logs / "differing.images/a.png", logs / "differing-baseline.images/a.png"),
               Drawn("b", "", "1", "2")),
    )  # fmt: skip


def test_stored_result_is_loaded_with_logs(tmp_path: Path, folder: Path) -> None:
    result = complete(tmp_path / "logs")
    assert load("key") is None
    store("key", result)
    shutil.rmtree(tmp_path / "logs")
    found = load("key")
    assert found is not None
    assert found.cached
    assert replace(found, cached=False, steps=(), drawn=()) == replace(result, steps=(), drawn=())
    assert found.drawn[1] == result.drawn[1]
    first = found.drawn[0]
    assert (first.name, first.sample, first.target, first.baseline) == ("a", "text", "1", "2")
    assert first.target_image is not None
    assert first.baseline_image is not None
    assert (first.target_image.read_text(), first.baseline_image.read_text()) == ("differing", "differing-baseline")
    assert (found.verdict, found.reasons) == (result.verdict, result.reasons)
    for step, stored in zip(result.steps, found.steps, strict=True):
        assert replace(stored, stdout=step.stdout, stderr=step.stderr, result=step.result, images=step.images) == (step)
        assert stored.stdout.read_text() == f"content of {step.step}.stdout"
        assert stored.stderr.is_file()
    assert found.steps[0].result is not None
    assert found.steps[0].result.with_name("valid.samples.csv").read_text() == "content of valid.samples.csv"
    assert found.steps[1].images[0].read_bytes() == b"\x89PNG"
    assert [path.name for path in folder.iterdir()] == ["key"]


def test_stored_result_is_replaced_and_old_one_deleted(tmp_path: Path, folder: Path) -> None:
    result = complete(tmp_path / "logs")
    store("old", result)
    os.utime(folder / "old", (1, 1))
    store("key", result)
    store("key", replace(result, notes=("another",)))
    found = load("key")
    assert found is not None
    assert found.notes == ("another",)
    assert [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: (entry / "result.json").unlink(),
        lambda entry: (entry / "result.json").write_text(""),
        lambda entry: (entry / "result.json").write_text("[1]"),
        lambda entry: (entry / "result.json").write_text("{}"),
        lambda entry: (entry / "result.json").write_bytes(b"\xff\xfe"),
        lambda entry: (entry / "result.json").write_text((entry / "result.json").read_text()[:-9]),
        lambda entry: change_json(entry, "steps", [{}]),
        lambda entry: change_json(entry, "steps", 5),
        lambda entry: change_json(entry, "extra", 5),
        lambda entry: change_json(entry, "accuracy", [{"verdict": "MAYBE"}]),
        lambda entry: (entry / "logs/valid.stderr").unlink(),
        lambda entry: shutil.rmtree(entry / "single.images"),
        lambda entry: shutil.rmtree(entry),
    ],
)
def test_damaged_result_is_not_loaded(tmp_path: Path, folder: Path, damage: Callable[[Path], None]) -> None:
    store("key", complete(tmp_path / "logs"))
    assert load("key") is not None
    damage(folder / "key")
    assert load("key") is None


def change_json(entry: Path, key: str, value: object) -> None:
    data = json.loads((entry / "result.json").read_text())
    (entry / "result.json").write_text(json.dumps(data | {key: value}))


def failed_step(result: CaseResult, code: int | None) -> CaseResult:
    step = replace(result.steps[1], passed=False, exit_code=code, reason="failed")
    return replace(result, steps=(result.steps[0], step))


def failed_accuracy(result: CaseResult) -> CaseResult:
    return replace(result, accuracy=(replace(result.accuracy[0], verdict=Verdict.FAIL),))


FAILURES: list[Callable[[CaseResult], CaseResult]] = [
    lambda result: failed_step(result, None),
    lambda result: failed_step(result, -9),
    lambda result: failed_step(result, 1),
    failed_accuracy,
    lambda result: replace(result, findings=(Finding("a.md", 3, "rule", "is wrong", "correct it"),)),
]


@pytest.mark.parametrize("fail", FAILURES)
def test_a_failed_result_is_not_stored_and_removes_an_older_one(
    tmp_path: Path, folder: Path, fail: Callable[[CaseResult], CaseResult]
) -> None:
    result = complete(tmp_path / "logs")
    store("key", fail(result))
    assert load("key") is None
    store("key", result)
    assert load("key") is not None
    store("key", fail(result))
    assert load("key") is None
    assert list(folder.iterdir()) == []


def test_missing_log_or_folder_is_not_an_error(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = complete(tmp_path / "logs")
    (tmp_path / "logs/valid.stdout").unlink()
    store("key", result)
    assert load("key") is None
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "file"))
    store("key", result)
    assert load("key") is None


def test_the_key_follows_weights_outside_of_a_model_elsewhere(root: Path) -> None:
    """The bytes of the model's file, and the size and time of its weights, stay the same."""
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    (root / "models").mkdir()
    path, data = root / "models" / "digits.onnx", root / "models" / "digits.data"
    onnx.save(model, str(path), save_as_external_data=True, location=data.name, size_threshold=0)
    one = case(ckpt="../../../models/digits.onnx")
    before, times = case_key(one, root), data.stat()
    assert case_key(one, root) == before
    content = data.read_bytes()
    data.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert case_key(one, root) != before
    data.write_bytes(content)
    assert case_key(one, root) == before


def test_the_key_changes_with_data_outside_that_keeps_its_time(root: Path) -> None:
    one = case(data_path=str(root.parent / "disk"))
    file = root.parent / "disk" / "3.png"
    before, times = case_key(one, root), file.stat()
    file.write_text("gnp")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert case_key(one, root) != before


def test_the_key_follows_the_code_of_engines_that_packages_bring(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine installed from a folder keeps its version; the check must not import it."""
    info = tmp_path / "brought" / "own_engine-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-engine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tecoinfer.engines]\nown = own_engine.deep:Engine\n")
    (tmp_path / "brought" / "own_engine").mkdir()
    (tmp_path / "brought" / "own_engine" / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    before = case_key(case(), root)
    monkeypatch.syspath_prepend(str(tmp_path / "brought"))
    brought = case_key(case(), root)
    assert brought != before
    (tmp_path / "brought" / "own_engine" / "deep.py").write_text("x = 1\n")
    assert case_key(case(), root) not in (before, brought)


def test_cache_removed_while_storing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored then, without an error."""
    monkeypatch.setattr("model_config.run.cache.cache_folder", lambda kind: folder / "gone")
    store("key", CaseResult("m", "example/x/m"))
    assert load("key") is None
