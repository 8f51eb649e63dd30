"""The smallest number of cards, and the batching policy, that answer a rate of requests in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tecoexec.plan.arrivals import Arrivals
from tecoexec.plan.curve import Curve
from tecoexec.plan.simulate import Policy, Simulation, simulate

PERCENTILE = 99.0

LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
"""Shares of the highest rate at which a plan is simulated again."""

_DELAYS = (0.0, 0.05, 0.1, 0.2)  # queue delays that are tried, as shares of the bound


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked for: requests per second, the bound of the 99th percentile in seconds, and the most cards."""

    rate: float
    bound: float
    most_cards: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A policy on a number of cards that reaches the goal."""

    cards: int
    policy: Policy
    result: Simulation


@dataclass(frozen=True, slots=True)
class Load:
    """Latencies of a plan at another rate: requests per second, seconds, and the share of busy time."""

    rate: float
    p50: float
    p99: float
    utilisation: float


def policies(curve: Curve, bound: float, delay: float | None = None) -> list[Policy]:
    """Return the policies to try: every batch of the curve, with several queue delays, or the given one in seconds."""
    delays = [share * bound for share in _DELAYS] if delay is None else [delay]
    return [Policy(size, 0.0 if size == 1 else one) for size in curve.sizes for one in (delays if size > 1 else [0.0])]


def run_policy(curve: Curve, arrivals: Arrivals, rate: float, cards: int, policy: Policy) -> Simulation:
    """Simulate a policy on a number of cards at a rate of requests per second."""
    service = curve.service(policy.max_batch)
    return simulate(arrivals.times(rate), service, cards * curve.servers, policy, arrivals.warm_up)


def best_plan(curve: Curve, arrivals: Arrivals, goal: Goal, tried: Sequence[Policy]) -> Plan | None:
    """Return the plan with the fewest cards, among those the one with the lowest 99th percentile; ``None``: none.

    The bound holds for the upper end of the percentile's confidence interval (of recorded arrivals: for the value).
    """
    found: Plan | None = None
    for policy in sorted(tried, key=lambda policy: _least(curve, goal.rate, policy)):
        most = goal.most_cards if found is None else found.cards
        plan = _smallest(curve, arrivals, goal, policy, most)
        if plan is not None and (found is None or _order(plan) < _order(found)):
            found = plan
    return found


def _order(plan: Plan) -> tuple[int, float]:
    return plan.cards, plan.result.percentile(PERCENTILE)


def _least(curve: Curve, rate: float, policy: Policy) -> int:
    """Return the cards below which the servers cannot keep up."""
    return math.floor(rate / (curve.rate(policy.max_batch) * curve.servers)) + 1


def _smallest(curve: Curve, arrivals: Arrivals, goal: Goal, policy: Policy, most: int) -> Plan | None:
    """Return the fewest cards with which a policy reaches the goal, at most ``most``; ``None``: it does not.

    The 99th percentile falls with every card: the number is doubled until it fits, then halved in between.
    """
    least = _least(curve, goal.rate, policy)
    if least > most or curve.mean(1, policy.max_batch) > goal.bound:
        return None
    plans: dict[int, Plan] = {}

    def reaches(cards: int) -> bool:
        result = run_policy(curve, arrivals, goal.rate, cards, policy)
        plans[cards] = Plan(cards, policy, result)
        return upper(result, arrivals) <= goal.bound

    high = least
    while not reaches(high):
        if high >= most or not _queues(plans[high], curve):
            return None
        high = min(most, 2 * high)
    low = high // 2 if high > least else least - 1
    low = max(low, least - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return plans[high]


def _queues(plan: Plan, curve: Curve) -> bool:
    """Return whether more cards can lower a plan's latency: some request waited for a server."""
    longest = max(curve.mean(size, plan.policy.max_batch) for size in curve.sizes if size <= plan.policy.max_batch)
    return plan.result.percentile(PERCENTILE) > plan.policy.delay + longest * 1.01


def upper(result: Simulation, arrivals: Arrivals) -> float:
    """Return the value that is held to the bound in seconds."""
    value = result.percentile(PERCENTILE)
    if arrivals.recorded is not None:
        return value
    high = result.interval(PERCENTILE)[1]
    return max(value, high) if math.isfinite(high) else value


def highest_rate(curve: Curve, plan: Plan) -> float:
    """Return the requests per second at which a plan's servers are always busy with full batches."""
    return curve.rate(plan.policy.max_batch) * curve.servers * plan.cards


def load_curve(curve: Curve, arrivals: Arrivals, plan: Plan) -> list[Load]:
    """Return the latencies of a plan at the shares :data:`LOADS` of its highest rate."""
    found = []
    for share in LOADS:
        rate = share * highest_rate(curve, plan)
        result = run_policy(curve, arrivals, rate, plan.cards, plan.policy)
        found.append(Load(rate, result.percentile(50), result.percentile(PERCENTILE), result.utilisation))
    return found


def why_not(curve: Curve, goal: Goal) -> str:
    """Return why no plan reaches the goal, as the end of a sentence, with what would."""
    unit = "cards" if curve.simulated else "hosts"
    fastest = min(curve.mean(1, size) for size in curve.sizes)
    if fastest > goal.bound:
        return (
            f"one request alone takes {fastest * 1e3:.3g} ms, more than the bound of {goal.bound * 1e3:.3g} ms; "
            "raise --p99, or use a smaller model or float16"
        )
    least = min(_least(curve, goal.rate, Policy(size)) for size in curve.sizes)
    if least > goal.most_cards:
        return f"its work alone keeps {least} {unit} busy, more than --max_cards {goal.most_cards}; raise it"
    return (
        f"no policy has a 99th percentile of at most {goal.bound * 1e3:.3g} ms on {goal.most_cards} {unit}; "
        "raise --p99 or --max_cards, or lower --queue_delay"
    )
