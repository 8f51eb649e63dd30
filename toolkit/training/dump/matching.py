"""Which call of one run is which of another: by step, phase and module, and there in the order of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from engine import DataError, OpCall, TrainingDump
from tecoinfer_modelzoo.formatting import plural
from toolkit.training.dump.alignment import aligned, same_lines

_SAME = 0.5
"""Share of the modules of one run that the other must have, where neither file says what the models are."""


_FEW = 4
"""Equal numbers in a list that are written out: those of a kernel or stride."""

_LEFT_OUT = "left out"
"""Stands for an argument that a call is not given."""


@dataclass
class Matched:
    """Pairs of calls, in the order of the judged run.

    Attributes:
        pairs: (reference, judged). only_a, only_b: calls that the other run has not.
    """

    pairs: list[tuple[OpCall, OpCall]] = field(default_factory=list)
    only_a: list[OpCall] = field(default_factory=list)
    only_b: list[OpCall] = field(default_factory=list)


def matched(a: TrainingDump, b: TrainingDump) -> Matched:
    """Match the calls of two runs; views and empty memory, which compute nothing, are left out.

    Raises:
        DataError: they are of different models.
    """
    _check_models(a, b)
    found = Matched()
    groups_a, groups_b = _groups(a.calls), _groups(b.calls)
    lines = same_lines(a.calls, b.calls)
    for key in {**groups_a, **groups_b}:
        ours, theirs = groups_a.get(key, []), groups_b.get(key, [])
        pairs = aligned(ours, theirs, lines)
        taken_a, taken_b = {id(a) for a, _ in pairs}, {id(b) for _, b in pairs}
        found.pairs += pairs
        found.only_a += [call for call in ours if id(call) not in taken_a]
        found.only_b += [call for call in theirs if id(call) not in taken_b]
    found.pairs.sort(key=lambda pair: pair[1].index)
    for rest in (found.only_a, found.only_b):
        rest.sort(key=lambda call: call.index)
    if not found.pairs:
        raise DataError(f"{a.path} and {b.path} have no call in common; dump the same steps of the same model")
    return found


def computes(call: OpCall) -> bool:
    """Say whether a call has values to compare."""
    return not (call.view or call.empty or call.op == "aten._local_scalar_dense.default")


def _groups(calls: Iterable[OpCall]) -> dict[tuple[int, str, str], list[OpCall]]:
    found: dict[tuple[int, str, str], list[OpCall]] = {}
    for call in calls:
        if computes(call):
            found.setdefault((call.step, call.phase, call.module), []).append(call)
    return found


def _check_models(a: TrainingDump, b: TrainingDump) -> None:
    for what in ("modules", "parameters"):
        ours, theirs = a.about.get(what), b.about.get(what)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            why = _first_other(ours, theirs, a, b)
            if why:
                raise DataError(f"{a.path} and {b.path} are dumps of different models: {why}")
    ours, theirs = ({call.module for call in dump.calls if call.module} for dump in (a, b))
    if ours and theirs and len(ours & theirs) < _SAME * min(len(ours), len(theirs)):
        shared = plural(len(ours & theirs), "module")
        raise DataError(
            f"{a.path} and {b.path} are dumps of different models: they share {shared}, and only one has "
            f"{min(ours ^ theirs)}"
        )


def _first_other(ours: Mapping[str, Any], theirs: Mapping[str, Any], a: TrainingDump, b: TrainingDump) -> str:
    for name in [*ours, *theirs]:
        if name not in theirs:
            return f"{b.path.name} has no {name}"
        if name not in ours:
            return f"{a.path.name} has no {name}"
        if ours[name] != theirs[name]:
            return f"{name} is {ours[name]} in {a.path.name} and {theirs[name]} in {b.path.name}"
    return ""


def other_arguments(a: OpCall, b: OpCall, tolerance: float) -> str:
    """Return in words which argument of a call differs, beyond devices, dtypes and rounding; "" where none does."""
    for name, ours, theirs in _arguments(a, b):
        if not _equal(ours, theirs, tolerance):
            return f"{name} is {_shown(theirs)}, {_shown(ours)} in the reference"
    return ""


def _arguments(a: OpCall, b: OpCall) -> list[tuple[str, Any, Any]]:
    """Return what both calls are given, by name; PyTorch leaves out what an operator takes by itself."""
    by_place = [(f"argument {k}", *pair) for k, pair in enumerate(zip_longest(a.args, b.args, fillvalue=_LEFT_OUT))]
    names = dict.fromkeys((*a.kwargs, *b.kwargs))
    return [*by_place, *((name, a.kwargs.get(name, _LEFT_OUT), b.kwargs.get(name, _LEFT_OUT)) for name in names)]


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if (a is None and b is _LEFT_OUT) or (b is None and a is _LEFT_OUT):
        return True
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        told = [one if isinstance(one, Mapping) else {} for one in (a, b)]
        if "float" in told[0] or "float" in told[1]:
            return bool(a == b)
        return ("tensor" in told[0]) == (
            "tensor" in told[1]
        )  # they are compared by value; dtypes and devices may differ
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(_equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * max(abs(a), abs(b))
    return bool(a == b)


def tensors_of(call: OpCall) -> list[int]:
    """Return which of its inputs a call is given, place by place; one may stand in several."""
    found: list[int] = []

    def look(value: Any) -> None:
        if isinstance(value, Mapping):
            if "tensor" in value:
                found.append(int(value["tensor"]))
            else:
                look(list(value.values()))
        elif isinstance(value, Sequence) and not isinstance(value, str):
            for one in value:
                look(one)

    look([*call.args, *call.kwargs.values()])
    return found


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "tensor" in value:
        return "a tensor"
    if isinstance(value, Sequence) and not isinstance(value, str):
        words = [_shown(one) for one in value]
        alike = len(words) > 1 and len(set(words)) == 1
        if alike and words[0] == "a tensor":
            return plural(len(words), "tensor")
        return f"{len(words)} times {words[0]}" if alike and len(words) > _FEW else f"[{', '.join(words)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
