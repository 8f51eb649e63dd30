"""Alignment of two sequences of calls: the most reliable criterion first, then others between its matches."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from engine.training import KeptTensor, OpCall

Pairs = list[tuple[int, int]]
Level = Callable[[Sequence[OpCall], Sequence[OpCall]], Pairs]
"""Returns pairs of indices of matching calls, increasing in both sequences."""

_FLOATS = ("float", "bfloat")
COPIES = ("aten._to_copy.", "aten.clone.", "aten.copy_.")
"""Operators that change only dtype, memory layout or device of values."""


_SAME_LINES = 0.95
"""Share of the calls with bit-identical inputs that must have the same source line, for lines to be comparable."""


def same_lines(ours: Iterable[OpCall], theirs: Iterable[OpCall]) -> bool:
    """Return whether source lines of both runs are comparable, judged by the calls with bit-identical inputs."""
    here, there = _lines(ours), _lines(theirs)
    both = [token for token in here if token in there]
    return sum(here[token] == there[token] for token in both) >= _SAME_LINES * len(both)


def _lines(calls: Iterable[OpCall]) -> dict[Hashable, str]:
    """Return the source line of each set of inputs that a run reads exactly once."""
    found: dict[Hashable, list[str]] = {}
    for call in calls:
        found.setdefault(_inputs_token(call), []).append(call.source)
    return {token: lines[0] for token, lines in found.items() if len(lines) == 1}


def aligned(ours: Sequence[OpCall], theirs: Sequence[OpCall], lines: bool) -> list[tuple[OpCall, OpCall]]:
    """Return the matching calls of two sequences.

    Calls with bit-identical inputs are matched first, or, if ``lines`` is set, calls of one source line. Casts are
    matched last: mixed precision has many more of them, and they must not shift the other matches.
    """
    return list(_filled(ours, theirs, (*(_OF_LINES if lines else ()), *_LEVELS)))


def is_cast(call: OpCall) -> bool:
    """Return whether a call only changes the dtype of floating-point values."""
    if not call.op.startswith(COPIES[0]) or not call.inputs or not call.outputs:
        return False
    before, after = call.inputs[0].dtype, call.outputs[0].dtype
    return before != after and before.startswith(_FLOATS) and after.startswith(_FLOATS)


def _filled(
    ours: Sequence[OpCall], theirs: Sequence[OpCall], levels: Sequence[Level]
) -> Iterator[tuple[OpCall, OpCall]]:
    if not levels or not ours or not theirs:
        return
    begin = (0, 0)
    for i, j in [*levels[0](ours, theirs), (len(ours), len(theirs))]:
        yield from _filled(ours[begin[0] : i], theirs[begin[1] : j], levels[1:])
        if i < len(ours):
            yield ours[i], theirs[j]
        begin = (i + 1, j + 1)


def _inputs_token(call: OpCall) -> Hashable:
    read = call.inputs or call.outputs
    return (call.op, *(one.digest for one in read)) if read else None


def _form_and_line(call: OpCall) -> Hashable:
    return (_form(call), call.source)


def _form(call: OpCall) -> Hashable:
    return (call.op, *map(_shape, call.inputs), "", *map(_shape, call.outputs))


def _shape(one: KeptTensor) -> Hashable:
    return (one.shape, "float" if one.dtype.startswith(_FLOATS) else one.dtype)


def _single(token: Callable[[OpCall], Hashable]) -> Level:
    """Return the criterion for calls whose token occurs once in each sequence: the longest increasing run of them."""

    def level(ours: Sequence[OpCall], theirs: Sequence[OpCall]) -> Pairs:
        here, there = [token(call) for call in ours], [token(call) for call in theirs]
        once = {one for one, n in Counter(here).items() if n == 1} & {
            one for one, n in Counter(there).items() if n == 1
        }
        places = {one: j for j, one in enumerate(there)}
        return _rising([(i, places[one]) for i, one in enumerate(here) if one is not None and one in once])

    return level


def _rising(pairs: Pairs) -> Pairs:
    """Return the longest subsequence of pairs, sorted by the first index, whose second indices increase too."""
    ends: list[int] = []  # smallest final second index of a run of each length
    last: list[int] = []  # index of that pair
    before: list[int] = []
    for k, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [k]
        before.append(last[length - 1] if length else -1)
    found: Pairs = []
    k = last[-1] if last else -1
    while k >= 0:
        found.append(pairs[k])
        k = before[k]
    return found[::-1]


def _blocks(token: Callable[[OpCall], Hashable], use: Callable[[OpCall], bool], least: float = 0.0) -> Level:
    """Return the criterion of longest matching blocks of at least the share ``least`` of the longer sequence."""

    def level(ours: Sequence[OpCall], theirs: Sequence[OpCall]) -> Pairs:
        here = [i for i, call in enumerate(ours) if use(call)]
        there = [j for j, call in enumerate(theirs) if use(call)]
        matcher = SequenceMatcher(None, [token(ours[i]) for i in here], [token(theirs[j]) for j in there], False)
        wanted = least * max(len(here), len(there))
        return [
            (here[block.a + k], there[block.b + k])
            for block in matcher.get_matching_blocks()
            if block.size >= wanted
            for k in range(block.size)
        ]

    return level


def _is_not_cast(call: OpCall) -> bool:
    return not is_cast(call)


_OF_LINES = (
    _single(lambda call: (_inputs_token(call), call.source)),
    _single(lambda call: None if is_cast(call) else _form_and_line(call)),
    _blocks(_form_and_line, _is_not_cast),
)
_LEVELS = (
    _single(_inputs_token),
    _blocks(_form, _is_not_cast),
    _blocks(_form, is_cast),
    _blocks(lambda call: call.op, lambda call: not call.op.startswith(COPIES), least=0.5),  # of other shapes
)
