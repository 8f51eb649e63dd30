from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from queueing import md1_mean_wait, md1_wait_exceeds, mmc_mean_wait, mmc_wait_quantile, solved

from tecoexec.plan.simulate import Policy, Simulation, confidence, poisson, quantile, simulate

COUNT, WARM_UP = 400_000, 40_000
ALONE = Policy(1)


def agrees(expected: float, interval: tuple[float, float]) -> None:
    """Check a value against a 95 % interval of the simulation, twice as wide: a fixed seed may be an unlucky one."""
    low, high = interval
    middle, half = (low + high) / 2, high - low
    assert half < 0.3 * middle  # an interval that says nothing accepts anything
    assert middle - half <= expected <= middle + half


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_m_d_1_agrees_with_queueing_theory(load: float) -> None:
    result = simulate(poisson(load, COUNT), lambda *_: 1.0, 1, ALONE, WARM_UP)
    agrees(md1_mean_wait(load, 1.0), confidence(result.latency - 1.0, lambda some: float(some.mean())))
    late = solved(lambda t: md1_wait_exceeds(load, 1.0, t) - 0.01, 0.0, 20.0)
    agrees(late + 1.0, result.interval(99))
    assert result.utilisation == pytest.approx(load, rel=0.01)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.6), (4, 0.85), (16, 0.8)])
def test_m_m_c_agrees_with_queueing_theory(servers: int, load: float) -> None:
    rng = np.random.default_rng(7)
    drawn = iter(rng.exponential(1.0, COUNT))
    times = []

    def service(_: int, start: float) -> float:
        times.append(float(next(drawn)))
        return times[-1]

    result = simulate(poisson(load * servers, COUNT), service, servers, ALONE, WARM_UP)
    waits = result.latency - np.asarray(times)[WARM_UP:]  # one at a time: in order of arrival
    agrees(mmc_mean_wait(load * servers, 1.0, servers), confidence(waits, lambda some: float(some.mean())))
    agrees(mmc_wait_quantile(load * servers, 1.0, servers, 0.99), confidence(waits, lambda some: quantile(some, 99)))


def latencies(arrivals: list[float], servers: int, policy: Policy, seconds: dict[int, float]) -> list[float]:
    return simulate(arrivals, lambda batch, _: seconds[batch], servers, policy).latency.tolist()


def test_a_free_server_takes_what_waits() -> None:
    # The first request is alone; two come while it is computed, and share the next batch.
    assert latencies([0, 1, 2], 1, Policy(4), {1: 4, 2: 6}) == [4, 9, 8]
    assert latencies([0, 1, 2], 1, Policy(1), {1: 4}) == [4, 7, 10]
    assert latencies([0, 1, 2], 3, Policy(4), {1: 4}) == [4, 4, 4]


def test_a_service_time_may_depend_on_the_start() -> None:
    starts: list[float] = []

    def service(batch: int, start: float) -> float:
        starts.append(start)
        return 1.0 if start < 2 else 5.0 * batch

    assert simulate([0, 1, 3, 4], service, 1, Policy(2)).latency.tolist() == [1, 1, 5, 9]
    assert starts == [0, 1, 3, 8]


def test_a_delay_waits_for_a_full_batch() -> None:
    policy = Policy(2, 3.0)
    assert latencies([0, 1], 1, policy, {2: 1}) == [2, 1]  # full before the delay
    assert latencies([0, 5], 1, policy, {1: 1}) == [4, 4]  # alone: after the delay
    assert latencies([0, 3], 1, policy, {2: 1}) == [4, 1]  # at the last moment
    assert latencies([0, 1, 2], 1, policy, {2: 4, 1: 1}) == [5, 4, 4]  # the delay passed while the server was busy


def test_the_largest_batch_limits() -> None:
    assert latencies([0, 0, 0], 1, Policy(2), {2: 1, 1: 1}) == [1, 1, 2]


def test_warm_up_and_busy_share() -> None:
    result = simulate([0, 10], lambda *_: 1.0, 2, ALONE, warm_up=1)
    assert (result.latency.tolist(), result.batches, result.mean_batch) == ([1], 2, 1)
    assert result.utilisation == pytest.approx(2 / (2 * 11))


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 6),
    st.floats(0, 3),
)
@settings(deadline=None)
def test_every_request_is_computed_once(gaps: list[float], servers: int, most: int, delay: float) -> None:
    seen: list[int] = []

    def service(count: int, _: float) -> float:
        seen.append(count)
        return 1.0 + 0.1 * count

    result = simulate(np.cumsum(gaps), service, servers, Policy(most, delay))
    assert sum(seen) == result.samples == len(gaps) == len(result.latency)
    assert max(seen) <= most
    assert np.all(result.latency >= 1.1 - 1e-9)
    assert 0 < result.utilisation <= 1 + 1e-9


def test_quantiles_are_those_of_loadgen() -> None:
    values = np.arange(50.0)[::-1]
    assert [quantile(values, p) for p in (50, 90, 99, 99.9)] == [25, 45, 49, 49]


def test_intervals_need_enough_requests() -> None:
    few = Simulation(np.ones(10), 10, 10, 0.5)
    assert few.interval(99) == (-np.inf, np.inf)
    low, high = confidence(np.random.default_rng(1).normal(5, 1, 4000), lambda some: float(some.mean()))
    assert low < 5 < high
    assert high - low < 0.1
