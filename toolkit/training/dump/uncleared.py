"""Recognize gradients that were not cleared: the optimizer reads the sum of two steps' gradients.

No operator computes wrongly then, and the operators of both runs may be the same except for additions.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine import Array
from engine.measures import differences
from engine.training import OpCall, TrainingDump, as_numbers
from toolkit.training.dump.optimizers import Value, begins, steps

_SHOWN = 0.5  # share of the values that a step reads wrongly and that are sums
_MOST = 16  # maximum values of a step that are examined


def uncleared(a: TrainingDump, b: TrainingDump, limit: float, threshold: float) -> str:
    """Return the note for the first optimizer step of ``b`` that reads sums of gradients; "" if there is none.

    A value is a sum if it differs from all values of the reference's step, and equals one of them plus a value that
    the previous step of ``b`` read. Only float32 values are examined.

    Args:
        a: the reference. b: the judged run. limit: diff2 above which values differ. threshold: of the measures.
    """
    ours, theirs = steps(a.calls), steps(b.calls)
    for (step, name), calls in sorted(theirs.items()):
        before = theirs.get((step - 1, name))
        reference = ours.get((step, name))
        if not before or not reference:
            continue
        found = list(_sums(a, b, reference, calls, before, limit, threshold))
        if found and sum(found) >= _SHOWN * len(found):
            return (
                f"gradients were not cleared: in step {step}, {name} reads the sum of the gradients of this step and "
                "of the one before it; call optimizer.zero_grad() before each backward"
            )
    return ""


def _sums(
    a: TrainingDump,
    b: TrainingDump,
    reference: list[OpCall],
    calls: list[OpCall],
    before: list[OpCall],
    limit: float,
    threshold: float,
) -> Iterator[bool]:
    """Yield for each value that a step reads and the reference does not, whether it is a sum."""
    right, earlier = _floats(a, begins(reference)), _floats(b, begins(before))
    examined = 0
    for value in _floats(b, begins(calls)):
        if not value.any():
            continue
        like = [one for one in right if one.shape == value.shape]
        if not like or any(_near(value, one, limit, threshold) for one in like):
            continue
        pairs = ((one, other) for one in like for other in earlier if other.shape == one.shape and other.any())
        yield any(_near(value, one + other, limit, threshold) for one, other in pairs)
        examined += 1
        if examined == _MOST:
            return


def _floats(dump: TrainingDump, values: list[Value]) -> list[Array]:
    return [as_numbers(one.array(dump), "float32") for one in values if one.tensor.dtype == "float32"]


def _near(value: Array, wanted: Array, limit: float, threshold: float) -> bool:
    return bool(differences([value], wanted, threshold)[0].diff2 <= limit)
