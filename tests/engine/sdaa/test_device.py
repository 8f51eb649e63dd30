from __future__ import annotations

import threading
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine.sdaa.card import load_card
from engine.sdaa.cost import IO_BUFFERS, ShardCost
from engine.sdaa.device import LOST, NO_HEARTBEAT, OK, CallTimes, Card, ShardTimes, SpaClock
from engine.sdaa.faults import Fault
from tecoinfer_modelzoo.errors import DeviceError, DeviceOutOfMemory

Array = np.ndarray[Any, np.dtype[Any]]

COST = ShardCost(2.0, 5.0, 1.0, 100, 20, 3, (), ())
"""Whole seconds, so that sums are exact."""


def double(arrays: Any) -> list[Array]:
    return [2 * array for array in arrays]


def card(*faults: Fault, spas: int = 4, threads: int = 1, cost: ShardCost = COST) -> Card:
    return Card(load_card(), range(10, 10 + spas), cost, double, faults, threads)


def shards(count: int, first: int = 0) -> list[list[Array]]:
    return [[np.full(3, first + i, np.float32)] for i in range(count)]


def values(results: list[list[Array]]) -> list[float]:
    return [float(array[0]) for (array,) in results]


def test_a_call_that_waits_takes_the_sum_of_its_phases() -> None:
    ours = card()
    for i in range(3):
        results, call = ours.run(shards(4))
        assert values(results) == [0, 2, 4, 6]
        assert call == (8.0 * i, 8.0 * i, 8.0 * (i + 1), 2.0, 5.0, 1.0)
    assert (ours.now, ours.elapsed) == (24.0, 24.0)
    assert [spa.shards for spa in ours.spas] == [3, 3, 3, 3]
    assert [spa.used for spa in ours.spas] == [123] * 4
    assert [spa.device for spa in ours.spas] == [10, 11, 12, 13]


def test_phases_of_several_shards_on_one_spa_are_added() -> None:
    _, call = card().run(shards(6))
    assert (call.copy_in, call.compute, call.copy_out) == (4.0, 10.0, 2.0)
    assert call.latency == 2.0 + 5.0 + 5.0 + 1.0


def test_queued_calls_take_the_slowest_phase_each_and_finish_in_order() -> None:
    ours = card()
    ends = [ours.run(shards(4), wait=False)[1].completed for _ in range(8)]
    assert ends == [8.0 + 5.0 * i for i in range(8)]
    assert (ours.now, ours.elapsed) == (0.0, ends[-1])
    _, call = ours.run(shards(4))
    assert (call.completed, ours.now) == (ends[-1] + 5.0, ends[-1] + 5.0)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=12), st.integers(1, 4))
@settings(deadline=None)
def test_lanes_never_overlap(calls: list[tuple[int, bool]], spas: int) -> None:
    ours = card(spas=spas)
    for count, wait in calls:
        ours.run(shards(count), wait=wait)
    spans = list(ours.timeline.spans)
    assert len(spans) == 3 * sum(count for count, _ in calls)
    for lane in {span.lane for span in spans}:
        for stage, length in (("copy in", 2.0), ("compute", 5.0), ("copy out", 1.0)):
            mine = [span for span in spans if (span.lane, span.stage) == (lane, stage)]
            assert all(span.end - span.start == length for span in mine)
            assert all(a.end <= b.start for a, b in pairwise(mine))
    assert {span.lane for span in spans} <= {f"SPA {k}" for k in range(spas)}


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_shards_computed_side_by_side_come_in_order(threads: int, count: int) -> None:
    seen: set[int] = set()

    def compute(arrays: Any) -> list[Array]:
        seen.add(threading.get_ident())
        return double(arrays)

    ours = Card(load_card(), range(4), COST, compute, (), threads)
    for _ in range(20):
        assert values(ours.run(shards(count))[0]) == [2.0 * i for i in range(count)]
    ours.close()
    assert len(seen) <= threads


def test_an_error_while_computing_is_passed_on() -> None:
    def compute(arrays: Any) -> list[Array]:
        if arrays[0][0] == 5:
            raise ZeroDivisionError
        return double(arrays)

    ours = Card(load_card(), range(4), COST, compute, (), 2)
    with pytest.raises(ZeroDivisionError):
        ours.run(shards(8))
    assert values(ours.run(shards(4))[0]) == [0, 2, 4, 6]


def test_too_large_a_model() -> None:
    big = ShardCost(1, 1, 1, 2**34, 2**20, 2**20, (), ())
    with pytest.raises(DeviceOutOfMemory, match=r"SPA 0 .*16386 MB.*15296 MB"):
        card(cost=big)


# --------------------------------------------------------------------------------------------------------------- faults


def test_a_lost_spa() -> None:
    ours = card(Fault("lose", 1, 1))
    assert ours.run(shards(4))[1].latency == 8.0
    with pytest.warns(UserWarning, match=r"SPA 1 .*DEVICE_LOST.*1;.*3 SPA"):
        results, call = ours.run(shards(4))
    assert values(results) == [0, 2, 4, 6]
    assert call.latency == 13.0  # SPA 0 computes a second shard
    assert [(spa.health, spa.used, spa.shards) for spa in ours.spas] == [
        (OK, 123, 3),
        (LOST, 0, 1),
        *[(OK, 123, 2)] * 2,
    ]
    assert ours.run(shards(3))[1].latency == 8.0
    assert len(ours.events) == 1


def test_a_spa_that_hangs_costs_the_heartbeat() -> None:
    ours = card(Fault("hang", 0, 0))
    with pytest.warns(UserWarning, match=r"SPA 0.*HEARTBEAT_ERROR in step 0"):
        _, call = ours.run(shards(4))
    assert ours.spas[0].health == NO_HEARTBEAT
    assert (
        call.latency == 8.0 + 5.0
    )  # given up after 1 s, while the first shard of the SPA that takes over is under way
    assert call.completed == ours.now


def test_a_slow_spa() -> None:
    ours = card(Fault("slow", 2, 1, 2.0), Fault("slow", 2, 2, 1.5))
    assert ours.run(shards(4))[1].latency == 8.0
    assert ours.events == []
    with pytest.warns(UserWarning, match=r"SPA 2.*SLOW.*step 1") as caught:
        assert ours.run(shards(4))[1].latency == 16.0
    with pytest.warns(UserWarning, match=r"SPA 2.*SLOW.*step 2") as again:
        assert ours.run(shards(4))[1].latency == 24.0
    assert ours.run(shards(4))[1].latency == 24.0  # reported once
    assert ours.events == [str(one.message) for one in (*caught, *again)]


def test_a_slow_spa_is_reported_without_a_shard() -> None:
    ours = card(Fault("slow", 3, 1, 2.0), Fault("slow", 1, 0, 1.0))
    ours.run(shards(1))
    with pytest.warns(UserWarning, match=r"SPA 3.*SLOW in step 1"):
        assert ours.run(shards(1))[1].latency == 8.0
    assert len(ours.events) == 1


def test_a_lost_spa_is_not_reported_as_slow() -> None:
    ours = card(Fault("lose", 1, 0), Fault("slow", 1, 1, 2.0))
    with pytest.warns(UserWarning, match="DEVICE_LOST"):
        ours.run(shards(4))
    ours.run(shards(4))
    assert len(ours.events) == 1


def test_out_of_memory_and_nan_occur_once() -> None:
    ours = card(Fault("oom", 3, 0), Fault("nan", 1, 1))
    with pytest.raises(DeviceOutOfMemory, match=r"SPA 3.*memory.*step 0.*injected"):
        ours.run(shards(4))
    np.testing.assert_array_equal(values(ours.run(shards(4))[0]), [0, np.nan, 4, 6])
    assert values(ours.run(shards(4))[0]) == [0, 2, 4, 6]


def test_nan_does_not_affect_integers() -> None:
    (result,), _ = card(Fault("nan", 0, 0)).run([[np.arange(3), np.ones(2, np.float16)]])
    np.testing.assert_array_equal(result[0], [0, 2, 4])
    assert np.isnan(result[1]).all()


def test_no_spa_left() -> None:
    ours = card(*(Fault("lose" if k % 2 else "hang", k, 2) for k in range(4)))
    ours.run(shards(4))
    ours.run(shards(4))
    with pytest.warns(UserWarning, match="SPA left") as caught, pytest.raises(DeviceError) as error:
        ours.run(shards(8), first_sample=32)
    assert "SPA 0 HEARTBEAT_ERROR, SPA 1 DEVICE_LOST" in str(error.value)
    assert str(error.value).endswith("the 32 samples before this call are done: resume at sample 32")
    assert len(caught) == len(ours.events) == 4
    with pytest.raises(DeviceError, match="resume at sample 32"):
        ours.run(shards(1), first_sample=32)


faults = st.builds(
    Fault, st.sampled_from(["lose", "hang", "slow"]), st.integers(0, 3), st.integers(0, 6), st.sampled_from([1.0, 2.0])
)


@pytest.mark.slow
@given(st.lists(faults, max_size=8), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8))
@settings(deadline=None, max_examples=150)
def test_every_shard_is_computed_once(injected: list[Fault], calls: list[tuple[int, bool]]) -> None:
    ours, returned, first, resumes = card(*injected), [], 0, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count, wait in calls:
            try:
                results, call = ours.run(shards(count, first), first, wait)
            except DeviceError as error:
                resumes = str(error).rsplit(maxsplit=1)[1]
                break
            assert call.submitted <= call.started <= call.completed <= ours.elapsed
            returned += values(results)
            first += count
    assert resumes in ("", str(first))
    assert bool(resumes) <= (not ours.healthy)
    assert returned == [2.0 * i for i in range(first)]
    assert sum(spa.shards for spa in ours.spas) == first
    failed = [spa for spa in ours.spas if spa.health != OK]
    assert [str(one.message) for one in caught] == ours.events
    assert len([event for event in ours.events if "SLOW" not in event]) == len(failed)
    steps = ours.step
    for spa in ours.spas:
        slow = [f for f in spa.faults if f.kind == "slow" and f.factor > 1 and f.step < steps]
        assert spa.health != OK or len({f.step for f in slow}) == sum(
            event.startswith(f"SPA {spa.index} ") for event in ours.events
        )
    for spa in failed:
        assert any(f.spa == spa.index and f.kind != "slow" and f.step < steps for f in injected)


# --------------------------------------------------------------------------------------------------------- the clock

seconds = st.integers(0, 50).map(float)
"""Whole numbers, so that sums are exact."""
one_shard = st.tuples(seconds, seconds, seconds, seconds)


def scheduled(shards: list[tuple[float, float, float, float]]) -> list[ShardTimes]:
    clock, now, times = SpaClock(), 0.0, []
    for gap, *phases in shards:
        now += gap
        times.append(clock.schedule(now, *phases))
        assert times[-1].copy_in[0] >= now
    return times


@given(st.lists(one_shard, min_size=1, max_size=20))
def test_a_unit_does_one_thing_at_a_time_and_in_order(shards: list[tuple[float, float, float, float]]) -> None:
    times = scheduled(shards)
    for (_, *phases), spans in zip(shards, times, strict=True):
        assert [end - start for start, end in spans] == phases
        assert spans.copy_in[1] <= spans.compute[0]
        assert spans.compute[1] <= spans.copy_out[0]
    for before, after in pairwise(times):
        for phase in range(3):
            assert before[phase][1] <= after[phase][0]


@given(st.lists(one_shard, min_size=1, max_size=20))
def test_buffers_in_use_are_limited(shards: list[tuple[float, float, float, float]]) -> None:
    times = scheduled(shards)
    for i, spans in enumerate(times[IO_BUFFERS:]):
        assert spans.copy_in[0] >= times[i].compute[1]
        assert spans.compute[0] >= times[i].copy_out[1]


@given(seconds, seconds, seconds)
def test_one_shard_takes_the_sum_of_its_phases(copy_in: float, compute: float, copy_out: float) -> None:
    clock, now = SpaClock(), 0.0
    for _ in range(5):
        end = clock.schedule(now, copy_in, compute, copy_out).end
        assert end - now == copy_in + compute + copy_out
        now = end


@given(seconds, seconds, seconds)
def test_queued_shards_take_the_slowest_phase_each(copy_in: float, compute: float, copy_out: float) -> None:
    times = scheduled([(0.0, copy_in, compute, copy_out)] * 12)
    periods = [after.end - before.end for before, after in pairwise(times[6:])]
    assert sum(periods) / len(periods) == max(copy_in, compute, copy_out)


def test_latency_counts_from_the_submission() -> None:
    assert CallTimes(1.0, 2.0, 5.0, 0.5, 2.0, 0.5).latency == 4.0
