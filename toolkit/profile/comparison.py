"""Comparison of two profiles by operator and by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine import ConfigError
from toolkit.profile.record import Profile


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Seconds of an operator or node before and now; 0 if it is absent."""

    name: str
    before: float
    now: float

    @property
    def difference(self) -> float:
        """Seconds gained (negative) or lost."""
        return self.now - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """Changes between two profiles: in total, by operator and by node, the largest first; ``notes``: other ones."""

    before: str
    total: TimeChange
    operators: tuple[TimeChange, ...]
    nodes: tuple[TimeChange, ...]
    notes: tuple[str, ...] = ()


def compare(before: Profile, now: Profile) -> Comparison:
    """Compare two profiles; raise ConfigError if one is simulated and the other measured, or the batches differ."""
    if before.kind != now.kind:
        raise ConfigError(
            f"the earlier profile is {before.kind} ({before.target}), this one is {now.kind} ({now.target}); "
            "profile both on one target"
        )
    if before.batch != now.batch:
        raise ConfigError(f"the profiles have batches {before.batch} and {now.batch}; use the same --batch_size")
    return Comparison(
        before=", ".join(filter(None, (before.model, before.dtype, before.pass_file))),
        total=TimeChange("compute", before.compute, now.compute),
        operators=_changes(
            ((op, seconds) for op, _, seconds in before.operators()), ((op, s) for op, _, s in now.operators())
        ),
        nodes=_changes(((s.name, s.seconds) for s in before.steps), ((s.name, s.seconds) for s in now.steps)),
        notes=tuple(_differences(before, now)),
    )


def _differences(before: Profile, now: Profile) -> Iterator[str]:
    """Yield notes on other differences between the profiles."""
    if before.model != now.model:
        yield f"the models differ: {before.model} before, {now.model} now"
    if before.dtype != now.dtype:
        yield f"the dtypes differ: {before.dtype} before, {now.dtype} now"
    if before.device != now.device:
        yield f"the devices differ: {before.device} before, {now.device} now"
    shapes = [", ".join(f"{name} {list(shape)}" for name, shape in one.inputs.items()) for one in (before, now)]
    if shapes[0] != shapes[1] and before.model == now.model:
        yield f"the inputs differ: {shapes[0]} before, {shapes[1]} now"


def _changes(before: Iterable[tuple[str, float]], now: Iterable[tuple[str, float]]) -> tuple[TimeChange, ...]:
    old, new = dict(before), dict(now)
    changes = [TimeChange(name, old.get(name, 0.0), new.get(name, 0.0)) for name in {**old, **new}]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference)))
