from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from engine.sdaa.clock import CallTimes, ShardTimes, SpaClock
from engine.sdaa.cost import IO_BUFFERS

seconds = st.integers(0, 50).map(float)
"""Whole numbers, so that sums are exact."""
shard = st.tuples(seconds, seconds, seconds, seconds)


def scheduled(shards: list[tuple[float, float, float, float]]) -> list[ShardTimes]:
    clock, now, times = SpaClock(), 0.0, []
    for gap, *phases in shards:
        now += gap
        times.append(clock.schedule(now, *phases))
        assert times[-1].copy_in[0] >= now
    return times


@given(st.lists(shard, min_size=1, max_size=20))
def test_a_unit_does_one_thing_at_a_time_and_in_order(shards: list[tuple[float, float, float, float]]) -> None:
    times = scheduled(shards)
    for (_, *phases), spans in zip(shards, times, strict=True):
        assert [end - start for start, end in spans] == phases
        assert spans.copy_in[1] <= spans.compute[0]
        assert spans.compute[1] <= spans.copy_out[0]
    for before, after in pairwise(times):
        for phase in range(3):
            assert before[phase][1] <= after[phase][0]


@given(st.lists(shard, min_size=1, max_size=20))
def test_no_more_buffers_than_there_are(shards: list[tuple[float, float, float, float]]) -> None:
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
