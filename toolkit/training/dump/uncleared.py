"""Recognize gradients that were not cleared: a backward pass adds to the gradient of an earlier step.

Such an addition is correct by itself, and in mixed precision the sums may be nearer to the reference than its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.training import OpCall, TrainingDump, as_numbers
from toolkit.training.dump.optimizers import steps


def uncleared(a: TrainingDump, b: TrainingDump) -> tuple[OpCall, str] | None:
    """Return the first call that adds to a gradient that was not cleared, and a note for the user, or ``None``.

    Args:
        a: the reference; steps in which it does the same do not count. b: the judged run.
    """
    same = {call.step for call in _additions(a)}
    found = next((call for call in _additions(b) if call.step not in same), None)
    if found is None:
        return None
    reader = next((name for step, name in steps(b.calls) if step == found.step), "the optimizer")
    return found, (
        f"gradients were not cleared: in step {found.step}, {reader} reads the sum of the gradients of this step and "
        "of the one before it; call optimizer.zero_grad() before each backward"
    )


def _additions(dump: TrainingDump) -> Iterator[OpCall]:
    """Yield the in-place additions of a backward pass to values, other than 0, that were not made in its step."""
    first = min((call.step for call in dump.calls), default=0)
    made: set[str] = set()
    step = first
    for call in dump.calls:
        if call.step != step:
            step, made = call.step, set()
        if (
            call.phase == "backward"
            and step > first
            and call.op.startswith("aten.add_.")
            and call.written[:1] == (0,)
            and "float" in (total := call.inputs[0]).dtype
            and total.digest not in made
            and as_numbers(dump.array(call, "input", 0), total.dtype).any()
        ):
            yield call
        made.update(one.digest for one in call.outputs)
