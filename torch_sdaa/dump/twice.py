"""Determinism check: run a part of a training twice and find the first operator that differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch

from engine.training import OpCall, Recorded
from torch_sdaa.dump.places import Places
from torch_sdaa.dump.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Parted:
    """First difference of two runs.

    Attributes:
        first, second: the call in each run; ``None`` if the run had ended. why: description.
    """

    first: OpCall | None
    second: OpCall | None
    why: str

    def __str__(self) -> str:
        call: OpCall = self.first or self.second  # type: ignore[assignment]  # one is not None
        where = f" of {call.module}" if call.module else ""
        source = f" ({call.source})" if call.source else ""
        return f"{call.where}{where}, {call.phase} of step {call.step}{source}: {self.why}"


def first_difference(run: Callable[[], Any], *, same_seed: bool = True) -> Parted | None:
    """Run a part of a training twice; return the first operator that is not bit-identical, or ``None``.

    Args:
        run: starts from the same state each time: it creates its model, or resets its weights.
        same_seed: both runs start with the current random state; ``False``: the second continues after the first.
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
    """Return the calls of a run, with digests instead of arrays."""
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
        return f"only in the {'second' if one is None else 'first'} run"
    if (one.op, one.module) != (other.op, other.module):
        return f"the second run has {other.op} of {other.module or 'no module'} instead"
    if one.view or one.empty:
        return ""
    digests = [tuple(k.digest for k in call.inputs[call.read_from :]) for call in (one, other)]
    results = [tuple(k.digest for k in call.outputs) for call in (one, other)]
    if digests[0] != digests[1]:
        return "its inputs differ, which no operator before made: a batch, weights or numbers of the host"
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
