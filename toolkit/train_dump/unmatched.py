"""Operators that one run alone has: where values agree they are nothing, such as casts or another way to the same.

A value that is off may have been made by an operator with no like in the other run: another activation, a factor that
was forgotten. So the way back from such a value is followed in both runs, through what has no like, to what has one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine import OpCall, TrainingDump
from toolkit.train_dump.alignment import COPIES

DRAWS = "draws other random numbers; run both with TORCH_SDAA_RANDOM=cpu and one seed"


class Flow:
    """Which call of a run made a value.

    Args:
        dump: the run. like: the names of the calls that have a like in the other run.
    """

    def __init__(self, dump: TrainingDump, like: Iterable[str]) -> None:
        self._like = set(like)
        self._calls = dump.calls
        self._makers: dict[str, list[int]] = {}
        for place, call in enumerate(dump.calls):
            for one in call.outputs:
                self._makers.setdefault(one.digest, []).append(place)
        self._places = {call.where: place for place, call in enumerate(dump.calls)}

    def maker(self, digest: str, before: OpCall) -> OpCall | None:
        """Return the last call that made a value before another one; ``None``: it was given."""
        makers = self._makers.get(digest, [])
        k = bisect_left(makers, self._places[before.where])
        return self._calls[makers[k - 1]] if k else None

    def way(self, call: OpCall, k: int) -> Way:
        """Return the way back from the k-th input of a call."""
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
            if not passes_on(made):
                found.alone.append(made)
            rest += [(made, one.digest) for one in made.inputs[made.read_from :]]
        found.alone.sort(key=lambda one: one.index)
        return found


@dataclass
class Way:
    """What stands behind a value.

    Attributes:
        alone: the calls that the other run has not, in order. ends: those before them that it has.
    """

    alone: list[OpCall] = field(default_factory=list)
    ends: list[OpCall] = field(default_factory=list)


def passes_on(call: OpCall) -> bool:
    """Say whether a call only hands on what it reads."""
    return call.view or call.empty or call.op.startswith(COPIES)


def forward_of(calls: Iterable[OpCall], found: OpCall) -> OpCall:
    """Return the first call of the forward that a call of a backward, which the other run has not, belongs to."""
    if found.phase != "backward":
        return found
    like = (one for one in calls if one.phase == "forward" and not passes_on(one))
    key = (found.step, found.module, found.source)
    return next((one for one in like if (one.step, one.module, one.source) == key), found)


def in_words(ours: OpCall | None, theirs: OpCall | None) -> str:
    """Return what stands behind a value that is off: in the reference, and in the judged run."""
    if theirs is None:
        return f"reads a value in which {_named(ours)} of the reference has no part: it is missing"
    if ours is not None and ours.draws and theirs.draws:
        return DRAWS
    if ours is None:
        return "has no like in the reference, and what follows is off"
    return f"stands where the reference has {_named(ours)}, and what follows is off"


def _named(call: OpCall | None) -> str:
    if call is None:
        return "nothing"
    return f"{call.where}{f' ({call.source})' if call.source else ''}"
