"""Tile sizes measured for target tvm: choices, their use, and failures of the process that measures."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import SaveOnnx

from engine import ConfigError, EngineSpec, open_engine
from engine.backends import tvm_schedule, tvm_tune
from engine.backends.tvm_runtime import TARGET_VARIABLE, Compiler
from engine.backends.tvm_tune import TUNE_VARIABLE, tuned, tuning_seconds

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")


def product(rows: int = 48, inner: int = 32, columns: int = 128) -> Any:
    """Return a kernel: a matrix product."""
    from tvm import te

    a, b = te.placeholder((rows, inner), name="a"), te.placeholder((inner, columns), name="b")
    k = te.reduce_axis((0, inner), name="k")
    return te.create_prim_func(
        [a, b, te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")]
    )


@needs_tvm
def test_a_choice_is_the_size_of_tiles() -> None:
    assert tvm_schedule.tiled_work(product()) == 48 * 32 * 128
    assert tvm_schedule.takes(product(), (32, 8))
    assert not tvm_schedule.takes(product(rows=45), (32, 8))  # 8 does not divide 45
    assert not tvm_schedule.takes(product(columns=120), (32, 8))
    found = list(tvm_tune._choices(product()))
    assert (16, 12) in found
    assert (64, 12) not in found  # more registers than there are


@needs_tvm
def test_the_search_finds_tiles_that_compute_the_same(
    save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(TUNE_VARIABLE, "0.5")
    used: list[dict[str, tuple[int, int]]] = []

    def searched(functions: Any, target: str, seconds: float) -> tuple[dict[str, tuple[int, int]], str]:
        found, problem = tuned(functions, target, seconds)
        assert (seconds, problem) == (0.5, "")
        used.append({**dict.fromkeys(functions, (16, 2)), **found})  # also where nothing is faster
        return used[-1], problem

    monkeypatch.setattr(tvm_tune, "tuned", searched)
    weights = np.random.default_rng(0).normal(size=(32, 128)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[n,32] x) => (float[n,128] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = save_onnx(model)
    x = np.random.default_rng(1).normal(size=(48, 32)).astype(np.float32)
    for _ in range(2):  # the second time from the cache
        with open_engine("tvm", EngineSpec(path, batch_size=48)) as engine:
            np.testing.assert_allclose(engine(x), x @ weights, rtol=1e-4, atol=1e-4)
        assert len(used) == 1
    monkeypatch.delenv(TUNE_VARIABLE)
    assert Compiler().schedule == tvm_schedule.VERSION  # another plan


def test_what_a_process_wrote_before_it_crashed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b'{"kernel": "a", "width": 16, "height": 4}\n{"kernel": 3}\n{"kernel": "b", "wid'
    assert tvm_tune._read(lines) == {"a": (16, 4)}
    assert tvm_tune._ended(0) == ""
    assert "3" in tvm_tune._ended(3)
    assert "SIGSEGV" in tvm_tune._ended(-11)


@needs_tvm
@pytest.mark.parametrize("way", ["crash", "hang"])
def test_a_crash_of_the_process_is_a_warning(
    way: str, save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(TUNE_VARIABLE, "1")
    monkeypatch.setattr(tvm_tune, "_GRACE", 0.0)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n" + ("kill -SEGV $$\n" if way == "crash" else "exec sleep 600\n"))
    program.chmod(0o755)
    monkeypatch.setattr(tvm_tune.sys, "executable", str(program))
    path = save_onnx("g (float[n,8] x) => (float[n,8] y) { y = Softmax(x) }")
    with pytest.warns(UserWarning, match="SIGSEGV" if way == "crash" else "within 1 s") as warned:
        engine = open_engine("tvm", EngineSpec(path, batch_size=2))
    assert all("\n" not in str(one.message) for one in warned)
    x = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    with engine:
        np.testing.assert_allclose(np.sum(engine(x), axis=1), [1, 1], rtol=1e-5)


@pytest.mark.parametrize("given", ["-1", "fast", "nan", "1e9"])
def test_seconds_that_are_none(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNE_VARIABLE, given)
    with pytest.raises(ConfigError, match=TUNE_VARIABLE) as refused:
        tuning_seconds()
    assert "\n" not in str(refused.value)


@needs_tvm
def test_other_kinds_of_targets_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNE_VARIABLE, "1")
    monkeypatch.setenv(TARGET_VARIABLE, "c")
    with pytest.raises(Exception, match=f"{TUNE_VARIABLE}|{TARGET_VARIABLE}"):
        Compiler()


def test_the_process_is_a_program_of_this_package() -> None:
    done = subprocess.run(
        [tvm_tune.sys.executable, "-m", "engine.backends.tvm_tune"], input=b"{}", capture_output=True, check=False
    )
    assert done.returncode != 0
    assert done.stdout == b""
