"""Engines released while threads call them: every call returns its result or raises one EngineError."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest
from support import DIGITS, TVM

from engine import Engine, EngineError, EngineSpec, open_engine
from engine.signature import Array, TensorSpec

X = np.ones((1, 3), np.float32)
PATIENCE = 60.0
"""Seconds after which a test that would hang fails."""


class Gate(Engine):
    """Calls block until the test sets ``go``."""

    concurrent_calls = True

    def __init__(self) -> None:
        super().__init__(EngineSpec(ckpt=Path("m.onnx")))
        self.began, self.go = threading.Semaphore(0), threading.Event()
        self.closed_during, self.inside, self.closed = False, 0, 0
        tensor = TensorSpec("x", np.dtype(np.float32), (None, 3))
        self.bind([tensor], [tensor], [["N", 3]])
        self.then: Callable[[], None] = lambda: None

    def infer(self, inputs: list[Array]) -> list[Array]:
        self.inside += 1
        self.began.release()
        assert self.go.wait(PATIENCE)
        self.then()
        self.inside -= 1
        return inputs

    def close(self) -> None:
        self.closed += 1
        self.closed_during |= self.inside > 0


def in_thread(call: Callable[[], object]) -> Future[object]:
    """Begin a call in a thread of its own."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the test reads it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def until_released(engine: Engine) -> None:
    """Wait until a release in another thread has started, after which calls are refused."""
    while not engine.released:
        threading.Event().wait(0.001)


@pytest.mark.parametrize("threads", [1, 4])
def test_release_waits_for_calls_and_refuses_later_ones(threads: int) -> None:
    engine = Gate()
    calls = [in_thread(lambda: engine(X)) for _ in range(threads)]
    for _ in calls:
        assert engine.began.acquire(timeout=PATIENCE)
    released = in_thread(engine.release)
    until_released(engine)
    assert (engine.closed, released.done()) == (0, False)
    for late in (lambda: engine(X), lambda: engine.call_shards([[X]]), lambda: engine.run_async(X)):
        with pytest.raises(EngineError, match=r"Gate was used after release\(\)"):
            late()
    engine.release()  # the second one does nothing
    engine.go.set()
    assert all(np.array_equal(call.result(PATIENCE), X) for call in calls)  # type: ignore[arg-type]
    released.result(PATIENCE)
    assert (engine.closed, engine.closed_during) == (1, False)


def test_queued_calls_end_or_are_cancelled() -> None:
    engine = Gate()
    first, second = engine.run_async(X), engine.run_async(X)
    assert engine.began.acquire(timeout=PATIENCE)
    released = in_thread(engine.release)
    with pytest.raises(CancelledError):
        second.result(PATIENCE)
    engine.go.set()
    np.testing.assert_array_equal(first.result(PATIENCE), X)  # type: ignore[arg-type]
    released.result(PATIENCE)
    assert engine.closed == 1


def test_submitting_after_release_is_the_same_error() -> None:
    engine = Gate()
    queue = engine.queue
    engine.release()
    with pytest.raises(EngineError, match="used after release"):
        queue.submit(engine, X)


@pytest.mark.parametrize("queued", [False, True])
def test_a_call_may_release_its_engine(queued: bool) -> None:
    engine = Gate()
    engine.go.set()
    engine.then = engine.release
    call = engine.run_async(X) if queued else in_thread(lambda: engine(X))
    np.testing.assert_array_equal(call.result(PATIENCE), X)  # type: ignore[arg-type]
    assert engine.closed == 1


@pytest.mark.parametrize("target", ["onnx", "cpu", "sdaa", *TVM])
@pytest.mark.parametrize("cancelled", [False, True])
def test_threads_that_call_while_it_is_released(target: str, cancelled: bool) -> None:
    """Four threads call until they are refused; earlier results are correct."""
    size = ((4, 3, 32, 32),)
    engine = open_engine(target, EngineSpec(DIGITS / "digits_dyn.onnx", input_size=size, batch_size=16))
    x = np.ones((8, 3, 32, 32), engine.input_dtype)
    want = engine(x)
    began = threading.Barrier(5)

    def call(queued: bool) -> str:
        began.wait(PATIENCE)
        while True:
            try:
                np.testing.assert_array_equal(engine.run_async(x).result(PATIENCE) if queued else engine(x), want)
            except CancelledError:
                return "was used after release()"
            except EngineError as error:
                if cancelled and "released" not in str(error) and "after release" not in str(error):
                    continue
                return str(error)

    calls = [in_thread(lambda queued=queued: call(queued)) for queued in (False, False, True, True)]  # type: ignore[misc]
    began.wait(PATIENCE)
    if cancelled:
        engine.cancel()
    engine.release()
    engine.cancel()
    engine.release()
    assert all("was used after release()" in str(one.result(PATIENCE)) for one in calls)
