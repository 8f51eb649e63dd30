"""Compare the results of optimizer steps: CPU and card may use different operators for the same step.

With a wrong learning rate or weight decay, no operator computes wrongly, and there may be no matching one. Therefore
the parameters and states after a step are compared if those before it agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

import numpy as np

from engine import Array
from engine.training import KeptTensor, OpCall, TrainingDump

ALONE = 0.1  # share of the limit above which the result of a repeated call, or of a step from equal values, is off
GROWTH = 100  # factor by which a step may increase the difference of values: an optimizer may divide by small numbers
_STATES = "aten.zeros"  # prefix of the operators that create the state of an optimizer in its first step

Apart = Callable[[Array, KeptTensor, Array, KeptTensor], float]
"""Returns diff2 between a tensor of the reference and one of the judged run."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a call: the k-th of ``inputs`` or ``outputs``."""

    call: OpCall
    k: int
    slot: str

    @property
    def tensor(self) -> KeptTensor:
        """Description of the tensor: shape, dtype, digest."""
        tensors: tuple[KeptTensor, ...] = getattr(self.call, self.slot)
        return tensors[self.k]

    def array(self, dump: TrainingDump) -> Array:
        """Return its values, read from the dump that has the call."""
        return dump.array(self.call, self.slot.removesuffix("s"), self.k)


def steps(calls: Iterable[OpCall]) -> dict[tuple[int, str], list[OpCall]]:
    """Return the calls of each optimizer step; two optimizers of one class in one step are merged."""
    found: dict[tuple[int, str], list[OpCall]] = {}
    for call in calls:
        if call.phase == "optimizer" and not call.failed:
            found.setdefault((call.step, call.module), []).append(call)
    return found


def off_after(
    a: TrainingDump, b: TrainingDump, ours: list[OpCall], theirs: list[OpCall], apart: Apart, limit: float
) -> tuple[OpCall, int, float] | None:
    """Return call, output and diff2 of the first tensor that a step makes wrong; ``None`` if its inputs were off."""
    begun, given = begins(theirs), begins(ours)
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
    """Return call, input index and diff2 of wrong inputs of a step, without those small compared with the others."""
    begun, given = begins(theirs), begins(ours)
    sizes = [_largest(b, one) for one in begun]
    found = []
    for one, size in zip(begun, sizes, strict=True):
        distance = _nearest(a, b, given, one, apart)
        if limit < distance < inf and distance * size > limit * max(sizes):
            found.append((one.call, one.k, distance))
    return found


def _largest(dump: TrainingDump, value: Value) -> float:
    return float(np.abs(value.array(dump)).max(initial=0.0)) if value.tensor.dtype == "float32" else 0.0


def begins(calls: list[OpCall]) -> list[Value]:
    """Return the tensors that a step reads and has not made, without scalars."""
    made: set[str] = set()
    found: dict[str, Value] = {}
    for call in calls:
        for k, one in enumerate(call.inputs):
            if one.shape and one.digest not in made:
                found.setdefault(one.digest, Value(call, k, "inputs"))
        made.update(one.digest for one in call.outputs)
    return list(found.values())


def _ends(calls: list[OpCall], made_here: bool) -> list[Value]:
    """Return the final values of tensors that a step updates in place; ``made_here``: also of those that it creates.

    One run may update a gradient in place (Nesterov momentum with foreach), another may create a new tensor.
    """
    fresh: set[str] = set()
    found: dict[str, Value] = {}
    for call in calls:
        for k, (one, number) in enumerate(zip(call.outputs, call.written, strict=True)):
            if number < 0:
                if not call.op.startswith(_STATES):
                    fresh.add(one.digest)
                if made_here and one.shape and not call.view:
                    found.setdefault(one.digest, Value(call, k, "outputs"))
                continue
            before = call.inputs[number].digest
            if before in fresh:
                fresh.add(one.digest)
            found.pop(before, None)
            if one.shape and (made_here or before not in fresh):
                found[one.digest] = Value(call, k, "outputs")
    return list(found.values())


def _nearest(a: TrainingDump, b: TrainingDump, pool: list[Value], one: Value, apart: Apart) -> float:
    """Return the smallest difference to a tensor of the same shape; infinite if there is none."""
    like = [value for value in pool if value.tensor.shape == one.tensor.shape]
    if any(value.tensor.digest == one.tensor.digest for value in like):
        return 0.0
    theirs = one.array(b) if like else None
    return min((apart(x.array(a), x.tensor, theirs, one.tensor) for x in like if theirs is not None), default=inf)
