"""A call of an engine that does not return is reported, once, with the engine's name and the step."""

from __future__ import annotations

import io
import threading
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Array, Engine, EngineSpec, TensorSpec
from tecoexec.measure import measure
from utils import stuck
from utils.datasets.samples import Batch
from utils.metrics import TopK
from utils.pipeline import evaluate, predict

LIMIT = 60.0
"""Seconds after which a test that waits for a warning fails."""


class Late(Engine):
    """Returns from the call of this number once something is on stderr, and from the others at once."""

    def __init__(self, said: io.StringIO, late: int) -> None:
        super().__init__(EngineSpec(ckpt=Path("m.onnx")))
        tensors = [TensorSpec(name, np.dtype(np.float32), (None, 4), 0, ("n", None)) for name in "xy"]
        self.bind(tensors[:1], tensors[1:], [["n", 4]])
        self._said, self._late, self.calls = said, late, 0

    def infer(self, inputs: list[Array]) -> list[Array]:
        self.calls += 1
        end = time.monotonic() + LIMIT
        while self.calls == self._late and not self._said.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)
        return inputs


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(stuck, "PATIENCE", 0.2)
    return io.StringIO()


def batches() -> list[Batch]:
    rows = np.eye(4, dtype=np.float32)
    return [Batch([rows[i]], np.array([i]), [f"{i}"]) for i in range(4)]


def check(said: io.StringIO, where: str) -> None:
    lines = [line for line in said.getvalue().splitlines() if line.startswith("warning: Late ")]
    assert lines
    assert all("0.2 s" in line and "Ctrl-C" in line for line in lines)
    assert where in lines[0]
    assert not [thread for thread in threading.enumerate() if thread.name == "teco-overdue"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation(workers: int, said: io.StringIO) -> None:
    with redirect_stderr(said), Late(said, 3) as engine:
        report = evaluate(engine, batches(), np.stack, np.asarray, TopK(1), workers=workers)
    assert (report.metric, report.steps) == (1.0, 4)
    check(said, "step " if workers else "step 3")


def test_answers(said: io.StringIO) -> None:
    with redirect_stderr(said), Late(said, 2) as engine:
        found = list(predict(engine, batches(), np.stack, lambda y: list(y.argmax(1)), failures=[], workers=0))
    assert [row.answer for row in found] == [0, 1, 2, 3]
    check(said, "step 2")


@pytest.mark.parametrize("run_sync", [True, False])
def test_a_measurement(run_sync: bool, said: io.StringIO) -> None:
    with redirect_stderr(said), Late(said, 3) as engine:
        found = measure(engine, [np.ones((1, 4), np.float32)], 1, iterations=3, warm_up=1, run_sync=run_sync)
    assert len(found.calls) == 3
    check(said, "calls")


def test_engines_that_return_are_not_reported(said: io.StringIO) -> None:
    with Late(said, 0) as engine, stuck.watching({"a": engine, "b": engine}, lambda: "step 1"):
        began: Any = engine.under_way
        engine(np.ones((1, 4), np.float32))
        ended = engine.under_way
    assert (began, ended) == (None, None)
