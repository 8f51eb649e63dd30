"""Only measurements are cached: an engine that failed is tried again, and other weights are another model."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import DIGITS, RunPython

from engine import Engine, EngineError, EngineSpec, open_engine
from engine.backends import trial

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

SAY = (
    "import sys\nfrom pathlib import Path\nfrom engine import *\n"
    "print(open_engine('cpu', EngineSpec(Path(sys.argv[1]), batch_size=8)).describe())"
)
LIMITED = (
    "import resource\nopen_engine('onnx', EngineSpec(Path(sys.argv[1]))).release()\n"
    "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
    "resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]) * 2**20,) * 2)\n"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.05)
    return tmp_path / "cache"


def measured(cache: Path) -> int:
    return len(list((cache / "trials").glob("*.json")))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say how much memory is in use")
def test_a_trial_that_ran_out_of_memory_is_not_cached(run_python: RunPython, cache: Path) -> None:
    path = DIGITS / "digits_dyn.onnx"
    code = SAY.replace("print(", LIMITED + "print(")
    said = ""
    for more in (20, 50, 100, 150, 200, 300):  # megabytes in which ONNX Runtime has room, and OpenVINO has not
        done = run_python("-c", code, path, more, TECO_CACHE_DIR=str(cache))
        if done.returncode == 0 and "was not used" in done.stdout:
            said = done.stdout
            break
    if not said:
        pytest.skip("no limit was found at which ONNX Runtime works and OpenVINO does not")
    assert said.startswith("ONNX Runtime")
    assert measured(cache) == 0
    after = run_python("-c", SAY, path, TECO_CACHE_DIR=str(cache))
    assert "in a trial" in after.stdout, after.stderr
    assert "OpenVINO" in after.stdout
    assert "was not used" not in after.stdout
    assert measured(cache) == 1


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_once_is_tried_again(
    run_python: RunPython, cache: Path, tmp_path: Path
) -> None:
    path = DIGITS / "digits_dyn.onnx"
    (tmp_path / "shadow" / "openvino").mkdir(parents=True)
    (tmp_path / "shadow" / "openvino" / "__init__.py").write_text("raise ImportError('not today')\n")
    once = run_python("-c", SAY, path, path=[tmp_path / "shadow"], TECO_CACHE_DIR=str(cache))
    assert "not today" in once.stdout, once.stderr
    assert measured(cache) == 0
    after = run_python("-c", SAY, path, TECO_CACHE_DIR=str(cache))
    assert "in a trial" in after.stdout, after.stderr


@pytest.mark.slow
def test_a_cached_engine_that_cannot_be_opened_is_skipped(run_python: RunPython, cache: Path) -> None:
    """If the cached winner fails this time, the other engine computes."""
    path = DIGITS / "digits_dyn.onnx"
    with opened(path):
        pass
    (entry,) = (cache / "trials").glob("*.json")
    before = entry.read_bytes()
    for chosen in ("ONNX Runtime", "OpenVINO"):
        make_fastest(cache, chosen)
        code = f"import sys\nsys.modules['openvino.runtime'] = sys.modules['openvino'] = None\n{SAY}"
        code = code.replace("print(", "from engine.backends import cpu\ncpu.openvino_installed = lambda: True\nprint(")
        done = run_python("-c", code, path, TECO_CACHE_DIR=str(cache))
        assert done.stdout.startswith("ONNX Runtime"), done.stderr
    entry.write_bytes(before)


def make_fastest(cache: Path, name: str) -> None:
    """Write a cache entry in which the engine of this name won."""
    from tecoinfer_modelzoo.cache import read_entry, write_entry

    (entry,) = (cache / "trials").glob("*.json")
    found = read_entry("trials", entry.stem)
    assert found is not None
    chosen = next(one for one in found["seconds"] if one.startswith(name))
    seconds = {one: 1.0 if one == chosen else 2.0 for one in found["seconds"]}
    write_entry("trials", entry.stem, {**found, "chosen": chosen, "seconds": seconds})


def test_a_cached_failure_is_ignored(cache: Path) -> None:
    """Earlier versions cached failed imports."""
    path = DIGITS / "digits_dyn.onnx"
    with opened(path) as engine:
        assert "in a trial" in engine.describe()
    (entry,) = (cache / "trials").glob("*.json")
    from tecoinfer_modelzoo.cache import read_entry, write_entry

    found = read_entry("trials", entry.stem)
    assert found is not None
    runtime, vino = found["seconds"]
    failed = {"chosen": runtime, "seconds": {}, "refused": {vino: "OpenVINO cannot be imported"}}
    write_entry("trials", entry.stem, failed)
    with opened(path) as engine:
        assert "was not used" not in engine.describe()


def opened(path: Path) -> Engine:
    return open_engine("cpu", EngineSpec(ckpt=path, batch_size=8))


def test_other_weights_outside_are_measured_anew(cache: Path, tmp_path: Path) -> None:
    """Which engine is right, and quicker, depends on the weights too: zeros are quick."""
    path, data = tmp_path / "digits.onnx", tmp_path / "digits.data"
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    onnx.save(model, str(path), save_as_external_data=True, location=data.name, size_threshold=0)
    opened(path).release()
    opened(path).release()
    assert measured(cache) == 1
    text, before = path.read_bytes(), data.stat()
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array * np.float32(0.5)), tensor.name))
    data.unlink()  # onnx.save appends
    onnx.save(model, str(path), save_as_external_data=True, location=data.name, size_threshold=0)
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.read_bytes(), data.stat().st_size) == (text, before.st_size)
    opened(path).release()
    assert measured(cache) == 2


@pytest.mark.parametrize(
    ("ruined", "when"),
    [
        ("deleted", "measured"),
        pytest.param("deleted", "opened", marks=pytest.mark.slow),
        pytest.param("emptied", "measured", marks=pytest.mark.slow),
        ("replaced", "opened"),
    ],
)
def test_an_int8_model_damaged_in_the_cache_during_the_run(
    ruined: str, when: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.backends import int8_models

    x = np.random.default_rng(0).random((16, 3, 32, 32), np.float32)
    spec = EngineSpec(ckpt=DIGITS / "digits_dyn.onnx", dtype="int8")

    def ruin() -> None:
        for file in (cache / "int8").glob("*.onnx"):
            if ruined == "emptied":
                file.write_bytes(b"")
            elif ruined == "replaced":
                shutil.copyfile(DIGITS / "digits.onnx", file)
        if ruined == "deleted":
            shutil.rmtree(cache)

    with open_engine("cpu", spec) as engine:
        engine.calibrate([[x]])
        expected, said = engine(x), engine.describe()
    before = "_measured" if when == "measured" else "choose"
    inner = getattr(int8_models.Int8Maker, before)

    def interrupted(self: int8_models.Int8Maker, *args: object) -> object:
        if when == "measured":
            ruin()
            return inner(self, *args)
        found = inner(self, *args)
        ruin()
        return found

    monkeypatch.setattr(int8_models.Int8Maker, before, interrupted)
    with open_engine("cpu", spec) as engine:
        engine.calibrate([[x]])
        again = engine.describe()
        if again.split(" int8")[0] == said.split(" int8")[0]:
            np.testing.assert_array_equal(engine(x), expected)
        assert engine.agreement is not None
        assert engine.agreement.cosine > 0.99


def test_int8_without_space_in_any_folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one line with the fix."""
    cache.write_text("in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    x = np.random.default_rng(0).random((16, 3, 32, 32), np.float32)
    spec = EngineSpec(ckpt=DIGITS / "digits_dyn.onnx", dtype="int8")
    with open_engine("cpu", spec) as engine, pytest.raises(EngineError, match="TMPDIR"):
        engine.calibrate([[x]])
