"""What a step of an optimizer leaves behind: the CPU and the card do the same step in other operators.

A wrong learning rate or weight decay has no operator that computes wrongly, nor one in the other run that it could be
compared with. So the parameters and states that a step ends with are compared, where what it began with agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from engine import Array, KeptTensor, OpCall, TrainingDump

ALONE = 0.1
"""Share of the limit from which something is off that inherits nothing."""

GROWTH = 100
"""How many times further off a step may leave values than it found them: an optimizer may divide by little."""

_STATES = "aten.zeros"
"""Operators that make what an optimizer keeps from its first step on."""

Apart = Callable[[Array, KeptTensor, Array, KeptTensor], float]
"""Returns diff2 of a tensor of the reference and one of the judged run."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A tensor of a call: the k-th input or output."""

    call: OpCall
    k: int
    slot: str

    @property
    def told(self) -> KeptTensor:
        tensors: tuple[KeptTensor, ...] = getattr(self.call, self.slot)
        return tensors[self.k]


def steps(calls: Iterable[OpCall]) -> dict[tuple[int, str], list[OpCall]]:
    """Return the calls of each step of each optimizer; of two of a class in one step, those of both."""
    found: dict[tuple[int, str], list[OpCall]] = {}
    for call in calls:
        if call.phase == "optimizer" and not call.failed:
            found.setdefault((call.step, call.module), []).append(call)
    return found


def off_after(
    a: TrainingDump, b: TrainingDump, ours: list[OpCall], theirs: list[OpCall], apart: Apart, limit: float
) -> tuple[OpCall, int, float] | None:
    """Return the first tensor that a step leaves off, as call, output and diff2; none where it began with such ones."""
    begun, given = _begins(theirs), _begins(ours)
    before = max((_nearest(a, b, given, one, apart) for one in begun), default=0.0)
    if before > limit:
        return None
    least = max(ALONE * limit, GROWTH * before)
    pool = _ends(ours, made_here=True)
    for one in _ends(theirs, made_here=False):
        distance = _nearest(a, b, pool, one, apart)
        if least < distance < inf:
            return one.call, one.k, distance
    return None


def begun_off(
    a: TrainingDump, b: TrainingDump, ours: list[OpCall], theirs: list[OpCall], apart: Apart, limit: float
) -> list[tuple[OpCall, int, float]]:
    """Return what only this step reads, as call, input and diff2; what is rounding beside the rest is left out."""
    begun, given = _begins(theirs), _begins(ours)
    sizes = [_largest(b, one) for one in begun]
    found = []
    for one, size in zip(begun, sizes, strict=True):
        distance = _nearest(a, b, given, one, apart)
        if limit < distance < inf and distance * size > limit * max(sizes):
            found.append((one.call, one.k, distance))
    return found


def _largest(dump: TrainingDump, value: _Value) -> float:
    return float(np.abs(_array(dump, value)).max(initial=0.0)) if value.told.dtype == "float32" else 0.0


def _begins(calls: list[OpCall]) -> list[_Value]:
    """Return what a step reads and has not made, without single numbers."""
    made: set[str] = set()
    found: dict[str, _Value] = {}
    for call in calls:
        for k, one in enumerate(call.inputs):
            if one.shape and one.digest not in made:
                found.setdefault(one.digest, _Value(call, k, "inputs"))
        made.update(one.digest for one in call.outputs)
    return list(found.values())


def _ends(calls: list[OpCall], made_here: bool) -> list[_Value]:
    """Return the last values of tensors that a step writes into; ``made_here``: also those that it made itself.

    What one run writes into a gradient, as Nesterov's momentum in lists, another one makes anew.
    """
    fresh: set[str] = set()
    found: dict[str, _Value] = {}
    for call in calls:
        for k, (one, number) in enumerate(zip(call.outputs, call.written, strict=True)):
            if number < 0:
                if not call.op.startswith(_STATES):
                    fresh.add(one.digest)
                if made_here and one.shape and not call.view:
                    found.setdefault(one.digest, _Value(call, k, "outputs"))
                continue
            before = call.inputs[number].digest
            if before in fresh:
                fresh.add(one.digest)
            found.pop(before, None)
            if one.shape and (made_here or before not in fresh):
                found[one.digest] = _Value(call, k, "outputs")
    return list(found.values())


def _nearest(a: TrainingDump, b: TrainingDump, pool: list[_Value], one: _Value, apart: Apart) -> float:
    """Return how far a tensor is off the nearest of its shape; infinite where there is none."""
    like = [value for value in pool if value.told.shape == one.told.shape]
    if any(value.told.digest == one.told.digest for value in like):
        return 0.0
    theirs = _array(b, one) if like else None
    return min((apart(_array(a, x), x.told, theirs, one.told) for x in like if theirs is not None), default=inf)


def _array(dump: TrainingDump, value: _Value) -> Array:
    return dump.array(value.call, value.slot.removesuffix("s"), value.k)
