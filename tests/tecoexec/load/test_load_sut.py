from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from engine import Array
from tecoexec.load.sut import SystemUnderTest


class Client:
    """Takes the answers in the place of LoadGen."""

    def __init__(self) -> None:
        self.answers: dict[int, float | None] = {}
        self.changed = threading.Condition()

    def respond(self, identifiers: Sequence[int], outputs: list[Array] | None) -> float:
        with self.changed:
            values = [None] * len(identifiers) if outputs is None else outputs[0].tolist()
            self.answers.update(zip(identifiers, values, strict=True))
            self.changed.notify_all()
        return time.perf_counter()

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.answers) >= count, timeout=60)


def doubled(indices: Sequence[int]) -> list[Array]:
    return [np.asarray(indices, np.float64) * 2]


def issue(sut: SystemUnderTest, *identifiers: int) -> None:
    sut.issue([(one, one % 5) for one in identifiers], time.perf_counter())


@pytest.mark.parametrize("workers", [1, 3])
def test_every_sample_is_answered_once_with_its_own_output(workers: int) -> None:
    client = Client()
    sut = SystemUnderTest(doubled, client.respond, max_batch=4, workers=workers)
    for first in range(0, 60, 3):
        issue(sut, first, first + 1, first + 2)
    client.wait(60)
    sut.close()
    assert client.answers == {one: 2.0 * (one % 5) for one in range(60)}
    assert sum(len(batch.samples) for batch in sut.served) == 60
    assert all(1 <= len(batch.samples) <= 4 for batch in sut.served)
    assert all(b.started <= b.computed <= b.completed <= b.answered for b in sut.served)


def test_what_waits_is_taken_together() -> None:
    client, gate = Client(), threading.Event()

    def gated(indices: Sequence[int]) -> list[Array]:
        assert gate.wait(60)
        return doubled(indices)

    sut = SystemUnderTest(gated, client.respond, max_batch=4)
    issue(sut, 0)
    while sut._queue:
        time.sleep(0.001)
    issue(sut, *range(1, 7))
    gate.set()
    client.wait(7)
    sut.close()
    assert [len(batch.samples) for batch in sut.served] == [1, 4, 2]


def test_a_delay_ends_with_a_full_batch_or_with_the_last_query() -> None:
    client = Client()
    sut = SystemUnderTest(doubled, client.respond, max_batch=3, delay=3600.0)
    issue(sut, 0)
    issue(sut, 1)
    issue(sut, 2)
    client.wait(3)
    issue(sut, 3)
    sut.flush()
    client.wait(4)
    sut.close()
    assert [len(batch.samples) for batch in sut.served] == [3, 1]


def test_a_delay_is_waited_for() -> None:
    client = Client()
    sut = SystemUnderTest(doubled, client.respond, max_batch=3, delay=0.05)
    issue(sut, 0)
    client.wait(1)
    sut.close()
    (batch,) = sut.served
    assert batch.started - batch.samples[0].received >= 0.05


def test_after_a_failure_everything_is_answered_at_once() -> None:
    client, calls = Client(), []

    def failing(indices: Sequence[int]) -> list[Array]:
        calls.append(len(indices))
        raise RuntimeError("broken")

    sut = SystemUnderTest(failing, client.respond, max_batch=2, delay=0.01)
    issue(sut, *range(9))
    client.wait(9)
    sut.close()
    assert str(sut.failure) == "broken"
    assert len(calls) == 1
    assert set(client.answers.values()) == {None}
