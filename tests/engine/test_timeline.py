from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from engine import Span, Timeline


def test_totals() -> None:
    timeline = Timeline()
    timeline.add("engine", 1.0, 1.5, 4)
    timeline.add("engine", 2.0, 2.25, 3, lane="spa0")
    assert timeline.seconds("engine") == 0.75
    assert timeline.count("engine") == 2
    assert timeline.samples("engine") == 7
    assert timeline.mean("engine") == 0.375
    assert list(timeline.spans) == [Span("engine", 1.0, 1.5, 4, "host"), Span("engine", 2.0, 2.25, 3, "spa0")]


def test_unknown_stage_is_zero() -> None:
    timeline = Timeline()
    assert (timeline.seconds("x"), timeline.count("x"), timeline.samples("x"), timeline.mean("x")) == (0.0, 0, 0, 0.0)


def test_memory_is_bounded_and_totals_stay_exact() -> None:
    timeline = Timeline(keep=3)
    for i in range(10):
        timeline.add("engine", i, i + 1, 2)
    assert [span.start for span in timeline.spans] == [7, 8, 9]
    assert (timeline.count("engine"), timeline.seconds("engine"), timeline.samples("engine")) == (10, 10.0, 20)


def test_clear() -> None:
    timeline = Timeline()
    timeline.add("engine", 0.0, 1.0, 1)
    timeline.clear()
    assert not timeline.spans
    assert timeline.count("engine") == 0


def test_threads_lose_no_span() -> None:
    timeline = Timeline(keep=10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: timeline.add("engine", 0.0, 1.0, i), range(2000)))
    assert timeline.count("engine") == 2000
    assert timeline.seconds("engine") == pytest.approx(2000.0)
    assert timeline.samples("engine") == sum(range(2000))


def test_workload_accumulates_until_it_is_reset() -> None:
    timeline = Timeline()
    assert timeline.amount("tokens") == 0
    timeline.gain("tokens", 3)
    timeline.gain("tokens", 4.5)
    timeline.gain("seconds", 1)
    assert (timeline.amount("tokens"), timeline.amount("seconds")) == (7.5, 1)
    timeline.clear()
    assert timeline.amount("tokens") == 0
