"""Engines in a forked child compute with their own queue, or raise an error at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import DIGITS, ROOT, TVM, RunPython, SaveOnnx

CHILD = """
import json, os, sys, threading
from pathlib import Path
import numpy as np
from engine import Engine, EngineError, EngineSpec, open_engine
from engine.backends.null import NullEngine

target, streams, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
x = np.random.default_rng(0).random((8, 3, 32, 32), np.float32)
began, go = threading.Event(), threading.Event()

class Slow(NullEngine):
    def infer(self, inputs):
        began.set()
        assert go.wait(60)
        return super().infer(inputs)

spec = EngineSpec(Path(sys.argv[4]), streams=streams, batch_size=8)
engine = Slow(spec) if target == "slow" else open_engine(target, spec)
x = x.astype(engine.input_dtype)
if target == "slow":
    thread = threading.Thread(target=engine, args=(x,))
    thread.start()
    assert began.wait(60)
    want = None
else:
    want = engine.run_async(x).result()
    assert np.array_equal(engine(x), want)
sys.stdout.flush()
child = os.fork()
if not child:
    ended = ""
    try:
        if way == "queued":
            found = [engine.run_async(x) for _ in range(4)]
            assert all(np.array_equal(one.result(), want) for one in found)
        else:
            assert np.array_equal(engine(x), want)
        ended = "computed"
    except EngineError as error:
        ended = str(error)
    engine.release()
    try:
        engine(x)
    except EngineError as error:
        assert "release" in str(error), error
    del engine
    print(ended, flush=True)
    sys.exit(7)
go.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if target == "slow":
    thread.join(60)
    want = engine(x)
assert np.array_equal(engine.run_async(x).result(), want)  # the parent's is as it was
engine.release()
print("parent computed")
"""


def forked(*words: object) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CHILD, *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


MODEL = """g (float[N,3,32,32] x) => (float[N,2,32,32] y) <float[2,3,1,1] w = {1,2,3,4,5,6}> {
    c = Conv(x, w)
    y = Relu(c)
}"""
"""TVM compiles it in a second; the digits would take six."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "streams", "way"),
    [
        ("onnx", 1, "queued"),
        ("onnx", 2, "direct"),
        ("sdaa", 1, "queued"),
        ("null", 1, "direct"),
        *((name, 2, "direct") for name in TVM),
    ],
)
def test_a_child_computes(target: str, streams: int, way: str, save_onnx: SaveOnnx) -> None:
    assert forked(target, streams, way, save_onnx(MODEL)) == ["computed", "parent computed"]


def test_a_fork_during_a_call_is_an_error_in_the_child() -> None:
    child, parent = forked("slow", 1, "queued", DIGITS / "digits_dyn.onnx")
    assert "forked" in child
    assert parent == "parent computed"


def test_slots_of_parent_threads_are_free_in_a_child() -> None:
    code = """
import os, sys, threading
from engine.host.cores import host_slots, usable_cores
began, go = threading.Semaphore(0), threading.Event()
def hold():
    with host_slots().taken():
        began.release()
        go.wait(60)
threads = [threading.Thread(target=hold) for _ in range(usable_cores())]
for thread in threads:
    thread.start()
    assert began.acquire(timeout=60)
child = os.fork()
if not child:
    with host_slots().taken():
        os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
sys.exit(code)
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=env, timeout=60, check=False).returncode == 7


RELEASED = """
import os, sys
from pathlib import Path
import numpy as np
from engine import EngineSpec
from engine.backends.ov import OpenVinoEngine
with OpenVinoEngine(EngineSpec(Path(sys.argv[1]), batch_size=2)) as engine:
    engine(np.ones((2, 3, 32, 32), np.float32))
del engine
child = os.fork()
if not child:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.slow
def test_a_forked_child_exits_after_openvino_ran(run_python: RunPython) -> None:
    pytest.importorskip("openvino")
    done = run_python("-W", "ignore::DeprecationWarning", "-c", RELEASED, DIGITS / "digits_dyn.onnx")
    assert done.returncode == 0, done.stderr
