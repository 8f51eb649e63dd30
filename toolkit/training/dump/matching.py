"""Match the calls of two runs: by step, phase and module, then by the order of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from engine import DataError
from engine.training import OpCall, TrainingDump
from tecoinfer_modelzoo.formatting import plural
from toolkit.training.dump.alignment import aligned, same_lines

_SAME = 0.5  # minimum share of common modules, if neither file describes its model


_FEW = 4  # number of equal list entries up to which they are written out, such as those of a kernel size or stride
_LEFT_OUT = "left out"  # stands for an argument that is not passed


@dataclass
class Matched:
    """Matched calls (reference, judged), in the order of the judged run, and those that only one run has."""

    pairs: list[tuple[OpCall, OpCall]] = field(default_factory=list)
    only_a: list[OpCall] = field(default_factory=list)
    only_b: list[OpCall] = field(default_factory=list)


def matched(a: TrainingDump, b: TrainingDump) -> Matched:
    """Match two runs' calls, without views and allocations (no computation); raise DataError for different models."""
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
        raise DataError(f"{a.path} and {b.path} have no common call; dump the same steps of the same model")
    return found


def computes(call: OpCall) -> bool:
    """Return whether a call has values to compare."""
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
    """Return a text for the first argument that differs beyond device, dtype and rounding; "" if none does."""
    for name, ours, theirs in _arguments(a, b):
        if not _equal(ours, theirs, tolerance):
            return f"{name} is {_shown(theirs)}, {_shown(ours)} in the reference"
    return ""


def _arguments(a: OpCall, b: OpCall) -> list[tuple[str, Any, Any]]:
    """Return the arguments of both calls by name; PyTorch omits default values."""
    by_place = [(f"argument {k}", *pair) for k, pair in enumerate(zip_longest(a.args, b.args, fillvalue=_LEFT_OUT))]
    names = dict.fromkeys((*a.kwargs, *b.kwargs))
    return [*by_place, *((name, a.kwargs.get(name, _LEFT_OUT), b.kwargs.get(name, _LEFT_OUT)) for name in names)]


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if (a is None and b is _LEFT_OUT) or (b is None and a is _LEFT_OUT):
        return True
    if isinstance(a, Mapping) or isinstance(b, Mapping):
        kinds = [one if isinstance(one, Mapping) else {} for one in (a, b)]
        if any("float" in kind for kind in kinds):
            return bool(a == b)
        return ("tensor" in kinds[0]) == ("tensor" in kinds[1])  # compared by value elsewhere; devices may differ
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(_equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * max(abs(a), abs(b))
    return bool(a == b)


def tensors_of(call: OpCall) -> list[int]:
    """Return the input index for each tensor argument of a call; an index may occur several times."""
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
