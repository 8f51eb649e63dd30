"""Two sequences of calls laid side by side: the surest pairs first, and what lies between them by ever less."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from engine import KeptTensor, OpCall

Pairs = list[tuple[int, int]]
Level = Callable[[Sequence[OpCall], Sequence[OpCall]], Pairs]
"""Returns places of both sequences that belong together, rising in both."""

_FLOATS = ("float", "bfloat")
COPIES = ("aten._to_copy.", "aten.clone.", "aten.copy_.")
"""Operators that give the values they read another dtype, layout or place."""


_SAME_LINES = 0.95
"""Share of the calls that read the same bits of which the lines must be the same, for lines to mean something."""


def same_lines(ours: Iterable[OpCall], theirs: Iterable[OpCall]) -> bool:
    """Say whether a line of the script is the same one in both runs, by the calls that read the same bits."""
    here, there = _lines(ours), _lines(theirs)
    both = [token for token in here if token in there]
    return sum(here[token] == there[token] for token in both) >= _SAME_LINES * len(both)


def _lines(calls: Iterable[OpCall]) -> dict[Hashable, str]:
    """Return the lines of what a run reads once."""
    found: dict[Hashable, list[str]] = {}
    for call in calls:
        found.setdefault(_by_what_they_read(call), []).append(call.source)
    return {token: lines[0] for token, lines in found.items() if len(lines) == 1}


def aligned(ours: Sequence[OpCall], theirs: Sequence[OpCall], lines: bool) -> list[tuple[OpCall, OpCall]]:
    """Return the calls of two sequences that belong together.

    Calls that read the same bits are the surest, or, where ``lines`` says that these are the same, calls of one line;
    casts, of which mixed precision has many more, come last, so that none of them puts the others out of step.
    """
    return list(_filled(ours, theirs, (*(_OF_LINES if lines else ()), *_LEVELS)))


def is_cast(call: OpCall) -> bool:
    """Say whether a call only gives floating-point numbers another dtype."""
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


def _by_what_they_read(call: OpCall) -> Hashable:
    read = call.inputs or call.outputs
    return (call.op, *(one.digest for one in read)) if read else None


def _by_form_and_line(call: OpCall) -> Hashable:
    return (_form(call), call.source)


def _form(call: OpCall) -> Hashable:
    return (call.op, *map(_shape, call.inputs), "", *map(_shape, call.outputs))


def _shape(one: KeptTensor) -> Hashable:
    return (one.shape, "float" if one.dtype.startswith(_FLOATS) else one.dtype)


def _single(token: Callable[[OpCall], Hashable]) -> Level:
    """Return the level of calls whose token each sequence has once: the longest run of them that rises in both."""

    def level(ours: Sequence[OpCall], theirs: Sequence[OpCall]) -> Pairs:
        here, there = [token(call) for call in ours], [token(call) for call in theirs]
        once = {one for one, n in Counter(here).items() if n == 1} & {
            one for one, n in Counter(there).items() if n == 1
        }
        places = {one: j for j, one in enumerate(there)}
        return _rising([(i, places[one]) for i, one in enumerate(here) if one is not None and one in once])

    return level


def _rising(pairs: Pairs) -> Pairs:
    """Return the longest part of pairs, in the order of the first places, whose second places rise too."""
    ends: list[int] = []  # the least second place in which a run of each length ends
    last: list[int] = []  # which pair that is
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
    """Return the level of the longest blocks; ``least``: the share of the longer sequence that a block must be."""

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


def _is_no_cast(call: OpCall) -> bool:
    return not is_cast(call)


_OF_LINES = (
    _single(lambda call: (_by_what_they_read(call), call.source)),
    _single(lambda call: None if is_cast(call) else _by_form_and_line(call)),
    _blocks(_by_form_and_line, _is_no_cast),
)
_LEVELS = (
    _single(_by_what_they_read),
    _blocks(_form, _is_no_cast),
    _blocks(_form, is_cast),
    _blocks(lambda call: call.op, lambda call: not call.op.startswith(COPIES), least=0.5),  # of other shapes
)
