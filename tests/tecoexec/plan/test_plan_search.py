from __future__ import annotations

import numpy as np
import pytest

from tecoexec.plan.arrivals import Arrivals
from tecoexec.plan.curve import Curve, batches_up_to, measured
from tecoexec.plan.search import LOADS, Goal, best_plan, highest_rate, load_curve, policies, run_policy, upper, why_not
from tecoexec.plan.simulate import Policy

CARD = Curve(
    {size: [1e-3 * (4 + size)] for size in (1, 2, 4, 8)}, padded=True, servers=4, memory={}, simulated=True, name="card"
)
"""A batch of b takes 4 + b ms on each of 4 SPA: 8 samples in 12 ms are 2667 samples/s a card."""

POISSON = Arrivals(20_000)


def planned(rate: float, bound: float, most: int = 1024, delay: float | None = None) -> object:
    return best_plan(CARD, POISSON, Goal(rate, bound, most), policies(CARD, bound, delay))


@pytest.mark.parametrize(("rate", "bound"), [(200, 0.02), (2000, 0.03), (10_000, 0.02), (60_000, 0.05)])
def test_a_plan_reaches_its_goal_and_no_policy_does_with_fewer_cards(rate: float, bound: float) -> None:
    goal = Goal(rate, bound, 1024)
    plan = best_plan(CARD, POISSON, goal, policies(CARD, bound))
    assert plan is not None
    assert upper(plan.result, POISSON) <= bound
    assert rate <= highest_rate(CARD, plan)
    if plan.cards > 1:
        for policy in policies(CARD, bound):
            fewer = run_policy(CARD, POISSON, rate, plan.cards - 1, policy)
            assert upper(fewer, POISSON) > bound or rate > CARD.rate(policy.max_batch) * 4 * (plan.cards - 1)


def test_more_requests_need_more_cards() -> None:
    cards = [planned(rate, 0.03).cards for rate in (500, 2000, 8000, 32_000)]  # type: ignore[attr-defined]
    assert cards == sorted(cards)
    assert cards[-1] > cards[0]


def test_a_rate_that_is_not_reachable() -> None:
    assert planned(100, 0.004) is None
    assert "one request alone takes 5 ms" in why_not(CARD, Goal(100, 0.004, 8))
    assert planned(1e5, 0.05, most=3) is None
    assert "keeps 38 cards busy" in why_not(CARD, Goal(1e5, 0.05, 3))
    assert planned(2600, 0.0125, most=1) is None  # one card keeps up, but not in time
    assert "99th percentile" in why_not(CARD, Goal(2600, 0.0125, 1))
    assert planned(100, 0.02, delay=0.1) is not None  # batch 1 does not wait


def test_a_given_delay_is_the_only_one() -> None:
    assert {policy.delay for policy in policies(CARD, 0.1, 0.02) if policy.max_batch > 1} == {0.02}
    assert len({policy.delay for policy in policies(CARD, 0.1)}) == 4


def test_latency_rises_with_load() -> None:
    goal = Goal(2000, 0.03, 10)
    plan = best_plan(CARD, POISSON, goal, [Policy(8)])
    assert plan is not None
    loads = load_curve(CARD, POISSON, plan)
    assert [load.rate for load in loads] == pytest.approx([share * highest_rate(CARD, plan) for share in LOADS])
    assert loads[-1].p99 > loads[0].p99
    assert all(load.p50 <= load.p99 for load in loads)
    assert all(0 < load.utilisation <= 1 for load in loads)


def test_recorded_arrivals_are_stretched_and_all_count() -> None:
    recorded = Arrivals(5, np.array([0.0, 1.0, 1.5, 3.0, 4.0]))
    assert recorded.rate == 1
    assert recorded.times(2.0).tolist() == [0, 0.5, 0.75, 1.5, 2]
    assert len(run_policy(CARD, recorded, 2.0, 1, Policy(1)).latency) == 5


def test_bursts_need_more_cards_than_poisson() -> None:
    bursts = Arrivals(20_000, np.repeat(np.arange(200) * 0.1, 100))
    goal = Goal(1000, 0.02, 1024)
    steady, bursty = (best_plan(CARD, source, goal, policies(CARD, 0.02)) for source in (POISSON, bursts))
    assert steady is not None
    assert bursty is not None
    assert bursty.cards > steady.cards


def test_smaller_batches_are_padded_on_the_card_only() -> None:
    assert CARD.service(8)(1, 0.0) == CARD.service(8)(8, 0.0) == 0.012
    host = Curve({1: [1.0], 4: [4.0]}, padded=False)
    assert [host.service(4)(batch, 0.0) for batch in (1, 2, 4)] == pytest.approx([1, 2, 4])
    assert host.rate(4) == 1


def test_measured_times_are_drawn_from_all_measurements() -> None:
    host = Curve({1: [1.0, 2.0, 3.0, 4.0]}, padded=False)
    service = host.service(1)
    drawn = [service(1, 0.0) for _ in range(400)]
    assert set(drawn) == {1.0, 2.0, 3.0, 4.0}
    assert host.mean(1, 1) == 2.5


def test_sizes() -> None:
    assert batches_up_to(1) == [1]
    assert batches_up_to(8) == [1, 2, 4, 8]
    assert batches_up_to(6) == [1, 2, 4, 6]


def test_calls_take_turns() -> None:
    calls: list[int] = []
    found = measured({1: lambda: calls.append(1), 2: lambda: calls.append(2)}, repeats=3)
    assert calls == [1, 2] * 4
    assert all(len(seconds) == 3 and seconds == sorted(seconds) for seconds in found.values())
