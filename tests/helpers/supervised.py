"""Models on which native code hangs or crashes, and supervised processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper
from support import ROOT

from tecoinfer_modelzoo.process.process_table import descendants

PATIENCE = 120.0
"""Timeout of tests in seconds."""


def tensor(name: str, kind: int, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, shape)


def save(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> Path:
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    sides = [tensor("x", T.FLOAT, [1, 4])], [tensor("y", T.FLOAT, [1, 4])]
    graph = h.make_graph(nodes, "g", *sides, weights)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


def save_endless(path: Path) -> Path:
    """Write a model whose loop has 2^62 rounds."""
    body = h.make_graph(
        [h.make_node("Identity", ["c"], ["c2"]), h.make_node("Add", ["v", "v"], ["v2"])],
        "body",
        [tensor("i", T.INT64, []), tensor("c", T.BOOL, []), tensor("v", T.FLOAT, [1, 4])],
        [tensor("c2", T.BOOL, []), tensor("v2", T.FLOAT, [1, 4])],
    )
    loop = h.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    return save(path, [loop], {"n": np.array(2**62, np.int64)})


def save_dividing(path: Path) -> Path:
    """Write a model that divides the smallest int64 by -1."""
    nodes = [
        h.make_node("Cast", ["x"], ["whole"], to=T.INT64),
        h.make_node("Mul", ["whole", "zero"], ["zeros"]),
        h.make_node("Add", ["zeros", "least"], ["dividend"]),
        h.make_node("Div", ["dividend", "minus"], ["quotient"], name="div"),
        h.make_node("Cast", ["quotient"], ["y"], to=T.FLOAT),
    ]
    least = np.full((1, 4), np.iinfo(np.int64).min, np.int64)
    return save(path, nodes, {"zero": np.array(0), "minus": np.array(-1), "least": least})


def wait_for(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] != b"Z"


def seconds_of(pid: int) -> float:
    """Return the processor time of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def computing(process: subprocess.Popen[str]) -> int:
    """Wait until the child of a command has computed for a second with ONNX Runtime loaded; return its number."""
    found, began = list[int](), list[float]()

    def ready() -> bool:
        assert process.poll() is None
        found[:] = descendants(process.pid)[:1]
        if not found or "onnxruntime" not in Path(f"/proc/{found[0]}/maps").read_text():
            return False
        began.append(seconds_of(found[0]))
        return began[-1] - began[0] > 1.0

    wait_for(ready)
    return found[0]


@contextmanager
def teco(*words: object, stdout: int = subprocess.PIPE, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a ``teco`` command in a session of its own; all its processes are ended afterwards."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "toolkit.cli", *map(str, words)]
    settings = {**os.environ, **environment}
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, env=settings, **pipes) as process:
        try:
            yield process
        finally:
            left = [process.pid, *descendants(process.pid)]
            for pid in left if process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process and return its exit code and what it wrote to stderr."""
    said = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, said
