"""Is a training deterministic? A piece of it run twice, and the first operator that did not do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from engine import OpCall, Recorded
from torch_sdaa.dump.places import Places
from torch_sdaa.dump.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Parted:
    """Where two runs part.

    Attributes:
        first, second: the call in each run; ``None`` where one had ended. why: in words.
    """

    first: OpCall | None
    second: OpCall | None
    why: str

    def __str__(self) -> str:
        call: OpCall = self.first or self.second  # type: ignore[assignment]  # one is there
        where = f" of {call.module}" if call.module else ""
        source = f" ({call.source})" if call.source else ""
        return f"{call.where}{where}, {call.phase} of step {call.step}{source}: {self.why}"


def first_difference(run: Callable[[], Any], *, same_seed: bool = True) -> Parted | None:
    """Run a piece of a training twice; return the first operator that differs, bit for bit, or ``None``.

    Args:
        run: begins anew each time: it makes its model, or sets its weights back.
        same_seed: both runs begin with the random numbers of now; ``False``: the second goes on where the first ended.
    """
    states = _states()
    first = _calls(run)
    if same_seed:
        _set(states)
    second = _calls(run)
    for one, other in zip_longest(first, second):
        why = _parts(one, other)
        if why:
            return Parted(one, other, why)
    return None


def _calls(run: Callable[[], Any]) -> list[OpCall]:
    """Return the calls of a run; their arrays are dropped at once, their digests tell them apart."""
    found: list[OpCall] = []

    def keep(recorded: Recorded) -> None:
        found.append(recorded.call)

    places = Places()
    places.start()
    try:
        with Recorder(keep, places):
            run()
    finally:
        places.stop()
    return found


def _parts(one: OpCall | None, other: OpCall | None) -> str:
    if one is None or other is None:
        return f"only the {'second' if one is None else 'first'} run has it"
    if (one.op, one.module) != (other.op, other.module):
        return f"the second run has {other.op} of {other.module or 'no module'} in its place"
    if one.view or one.empty:
        return ""
    digests = [tuple(k.digest for k in call.inputs[call.read_from :]) for call in (one, other)]
    results = [tuple(k.digest for k in call.outputs) for call in (one, other)]
    if digests[0] != digests[1]:
        return "its inputs differ, which no operator before it made: a batch, weights or numbers of the host"
    if (one.args, one.kwargs) != (other.args, other.kwargs):
        return "its arguments differ"
    if results[0] == results[1]:
        return ""
    return "it draws other random numbers" if one.draws else "equal inputs gave other results"


def _states() -> list[tuple[torch.Generator, torch.Tensor]]:
    generators = [torch.default_generator, *getattr(getattr(torch, "sdaa", None), "default_generators", ())]
    return [(one, one.get_state()) for one in generators]


def _set(states: list[tuple[torch.Generator, torch.Tensor]]) -> None:
    for generator, state in states:
        generator.set_state(state)
