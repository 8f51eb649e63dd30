"""Operators that only one run has: harmless if later values agree, such as casts or equivalent formulas.

A value may be off due to an operator without a match in the other run: a different activation, a missing factor.
Therefore the path back from such a value is followed in both runs, through operators without a match to matched ones.
If the path has only views and copies, the runs read different values or different parts of one value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from engine.training import OpCall, TrainingDump, as_numbers
from toolkit.training.dump.alignment import COPIES
from toolkit.training.dump.matching import other_arguments

DRAWS = "draws other random numbers; run both with TORCH_SDAA_RANDOM=cpu and one seed"
DRAWS_IN_OTHER_DTYPE = (
    "draws other random numbers in {} than the reference does in {} from one seed: draw in one dtype in both, and cast"
)

_IN_LISTS = ("aten._foreach_", "aten._fused_")


class Flow:
    """Which call of a run made a value; ``like``: names of the calls that the other run has too."""

    def __init__(self, dump: TrainingDump, like: Iterable[str]) -> None:
        self._dump = dump
        self._like = set(like)
        self._calls = dump.calls
        self._makers: dict[str, list[int]] = {}
        for place, call in enumerate(dump.calls):
            for one in call.outputs:
                self._makers.setdefault(one.digest, []).append(place)
        self._places = {call.where: place for place, call in enumerate(dump.calls)}

    def maker(self, digest: str, before: OpCall) -> OpCall | None:
        """Return the last call before ``before`` that made a value; ``None`` if no call did."""
        makers = self._makers.get(digest, [])
        k = bisect_left(makers, self._places[before.where])
        return self._calls[makers[k - 1]] if k else None

    def way(self, call: OpCall, k: int) -> Way:
        """Return the path back from the k-th input of a call."""
        found, seen, rest = Way(), set(), [(call, call.inputs[k].digest)]
        while rest:
            reader, digest = rest.pop()
            made = self.maker(digest, reader)
            if made is None or made.where in seen:
                continue
            seen.add(made.where)
            if made.where in self._like and not passes_on(made):
                found.ends.append(made)
                continue
            read = made.inputs[made.read_from :]
            if made.view:
                found.views.append(made)
            elif self._scales_the_loss(made):
                read = read[:1]  # the other operand comes from the scaler
            elif not passes_on(made):
                found.alone.append(made)
            rest += [(made, one.digest) for one in read]
        found.alone.sort(key=lambda one: one.index)
        found.views.sort(key=lambda one: one.index)
        return found

    def _scales_the_loss(self, call: OpCall) -> bool:
        """Return whether a call makes the loss scale or multiplies by it, as a ``GradScaler`` does."""
        if call.loss_scale is None or not call.op.startswith(("aten.mul.", "aten.full.")):
            return False
        numbers = [("input", k, one) for k, one in enumerate(call.inputs)][1:]  # input 0 is the loss or its gradient
        for slot, k, one in (*numbers, *(("output", k, one) for k, one in enumerate(call.outputs))):
            if one.shape in ((), (1,)) and one.dtype.startswith(("float", "bfloat")):
                value = as_numbers(self._dump.array(call, slot, k), one.dtype)
                if float(value.reshape(-1)[0]) == call.loss_scale:
                    return True
        return False


@dataclass
class Way:
    """Path back from a value."""

    alone: list[OpCall] = field(default_factory=list)  # calls that the other run does not have, in order
    ends: list[OpCall] = field(default_factory=list)  # the matched calls before them
    views: list[OpCall] = field(default_factory=list)  # views on the path, in order
    steps: list[OpCall] = field(default_factory=list)  # optimizer calls that :func:`without_steps` removed

    @property
    def last_step(self) -> OpCall | None:
        """The first call of the last removed step."""
        last = max((one.step for one in self.steps), default=None)
        return next((one for one in self.steps if one.step == last), None)


def without_steps(ours: Way, theirs: Way) -> tuple[Way, Way]:
    """Return both paths without optimizer steps, if only one run computes these on lists of parameters.

    The operators of such steps have no match; both compute correctly, and may differ if the optimizer divides by small
    numbers.
    """
    steps = [[one for one in way.alone if one.phase == "optimizer"] for way in (ours, theirs)]
    in_lists = [any(one.op.startswith(_IN_LISTS) for one in some) for some in steps]
    if not all(steps) or in_lists[0] == in_lists[1]:
        return ours, theirs
    rest = [[one for one in way.alone if one.phase != "optimizer"] for way in (ours, theirs)]
    first, second = (
        replace(way, alone=some, steps=taken) for way, some, taken in zip((ours, theirs), rest, steps, strict=True)
    )
    return first, second


def passes_on(call: OpCall) -> bool:
    """Return whether a call only forwards its inputs."""
    return call.view or call.empty or call.op.startswith(COPIES)


def forward_of(calls: Iterable[OpCall], found: OpCall) -> OpCall:
    """Return the first forward call that an unmatched backward call belongs to."""
    if found.phase != "backward":
        return found
    like = (one for one in calls if one.phase == "forward" and not passes_on(one))
    key = (found.step, found.module, found.source)
    return next((one for one in like if (one.step, one.module, one.source) == key), found)


def other_way(ours: Way, theirs: Way, like: Mapping[str, OpCall]) -> tuple[OpCall | None, str]:
    """Return why a value differs although no operator on its path computes anything; "" without a reason.

    Before it, the judged run's view that selects a different part, or ``None``. ``like``: reference calls by judged
    name.
    """
    if len(ours.ends) != 1 or len(theirs.ends) != 1:
        return None, ""
    if like[theirs.ends[0].where].where != ours.ends[0].where:
        return None, f"reads what {_named(theirs.ends[0])} gives, and the reference {_named(ours.ends[0])}"
    for one, other in zip_longest(ours.views, theirs.views):
        if one is None or other is None or one.op != other.op:
            there = "nothing" if one is None else _named(one)
            return other, f"another view of what {_named(theirs.ends[0])} gives, where the reference has {there}"
        why = other_arguments(one, other, 0.0)
        if why:
            return other, f"another part of what {_named(theirs.ends[0])} gives: {why}"
    return None, ""


def in_words(ours: OpCall | None, theirs: OpCall | None) -> str:
    """Return a text about the first unmatched operators, of reference and judged run, behind a wrong value."""
    if theirs is None:
        return f"reads a value without {_named(ours)} of the reference, which is missing here"
    if ours is not None and ours.draws and theirs.draws:
        return DRAWS
    if ours is None:
        return "has no match in the reference, and later values are off"
    return f"replaces {_named(ours)} of the reference, and later values are off"


def _named(call: OpCall | None) -> str:
    if call is None:
        return "nothing"
    return f"{call.where}{f' ({call.source})' if call.source else ''}"
