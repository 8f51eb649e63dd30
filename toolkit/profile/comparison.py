"""Two profiles of a model side by side: by operator and by node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine import ConfigError
from toolkit.profile.record import Profile


@dataclass(frozen=True, slots=True)
class TimeChange:
    """Seconds of an operator or node before and now; 0 where it is not there."""

    name: str
    before: float
    now: float

    @property
    def difference(self) -> float:
        """Seconds gained (negative) or lost."""
        return self.now - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one profile to another: in sum, by operator and by node, the largest change first.

    Attributes:
        before: what it is compared with, in words. notes: in what the two differ besides, one line each.
    """

    before: str
    total: TimeChange
    operators: tuple[TimeChange, ...]
    nodes: tuple[TimeChange, ...]
    notes: tuple[str, ...] = ()


def compare(before: Profile, now: Profile) -> Comparison:
    """Compare two profiles.

    Raises:
        ConfigError: one is simulated and the other measured, or they ran different batches.
    """
    if before.kind != now.kind:
        raise ConfigError(
            f"the profile to compare with is {before.kind} ({before.target}), this one is {now.kind} ({now.target}); "
            "host and card times are never compared: profile both on one target"
        )
    if before.batch != now.batch:
        raise ConfigError(
            f"the profiles ran batches of {before.batch} and {now.batch}; profile both with one --batch_size"
        )
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
    """Yield what else is not the same, so that nobody takes the whole difference for that of a pass."""
    if before.model != now.model:
        yield f"two models are compared: {before.model} before, {now.model} now"
    if before.dtype != now.dtype:
        yield f"{before.dtype} before, {now.dtype} now"
    if before.device != now.device:
        yield f"before on {before.device}, now on {now.device}"
    shapes = [", ".join(f"{name} {list(shape)}" for name, shape in one.inputs.items()) for one in (before, now)]
    if shapes[0] != shapes[1] and before.model == now.model:
        yield f"the inputs were {shapes[0]} before, and are {shapes[1]} now"


def _changes(before: Iterable[tuple[str, float]], now: Iterable[tuple[str, float]]) -> tuple[TimeChange, ...]:
    old, new = dict(before), dict(now)
    changes = [TimeChange(name, old.get(name, 0.0), new.get(name, 0.0)) for name in {**old, **new}]
    return tuple(sorted(changes, key=lambda change: -abs(change.difference)))
