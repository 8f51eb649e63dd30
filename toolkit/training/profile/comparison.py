"""Comparison of two profiles of a training: simulated time and launches per step by operator, and bottlenecks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from toolkit.profile.comparison import TimeChange
from toolkit.training.profile.bottlenecks import Bottleneck, bottlenecks
from toolkit.training.profile.record import Profile, total


@dataclass(frozen=True, slots=True)
class Change(TimeChange):
    """An operator before and now: simulated seconds and launches per step."""

    launches_before: float
    launches_now: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Changes per step in total and by operator, the largest first; bottlenecks gone and come; other differences."""

    before: str
    now: str
    total: Change
    operators: tuple[Change, ...]
    gone: tuple[Bottleneck, ...]
    come: tuple[Bottleneck, ...]
    notes: tuple[str, ...]


def compare(before: Profile, now: Profile) -> Comparison:
    """Compare two profiles per step; their numbers of steps may differ."""
    old, new = _by_op(before), _by_op(now)
    changes = [Change(op, *_pair(old, new, op, 0), *_pair(old, new, op, 1)) for op in {**old, **new}]
    sums = [sum(value[i] for value in side.values()) for i in (0, 1) for side in (old, new)]
    was, is_now = bottlenecks(before), bottlenecks(now)
    notes = []
    if before.data.get("card") != now.data.get("card"):
        notes.append(f"two cards are compared: {before.data.get('card')} before, {now.data.get('card')} now")
    if before.steps != now.steps:
        notes.append(f"{before.steps} steps before, {now.steps} now; figures are those of one step")
    return Comparison(
        before.name,
        now.name,
        Change("all", *sums),
        tuple(sorted(changes, key=lambda change: (-abs(change.difference), change.name))),
        tuple(one for one in was if not _among(one, is_now)),
        tuple(one for one in is_now if not _among(one, was)),
        tuple(notes),
    )


def _pair(
    old: dict[str, tuple[float, float]], new: dict[str, tuple[float, float]], op: str, i: int
) -> tuple[float, float]:
    return old.get(op, (0.0, 0.0))[i], new.get(op, (0.0, 0.0))[i]


def _by_op(profile: Profile) -> dict[str, tuple[float, float]]:
    """Return simulated seconds and launches per step, by operator."""
    groups = defaultdict(list)
    for row in profile.launches():
        groups[row.op].append(row)
    return {
        op: (profile.per_step(total(rows)), profile.per_step(sum(row.count for row in rows)))
        for op, rows in groups.items()
    }


def _among(one: Bottleneck, others: list[Bottleneck]) -> bool:
    """Return whether others have a bottleneck of this kind and operator; its line may have moved."""
    return any(one.kind == other.kind and one.ops[:1] == other.ops[:1] for other in others)
