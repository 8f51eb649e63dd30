"""Union and nesting of time spans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from torch_sdaa.profiling.collect import HostSpan

N = TypeVar("N", int, float)


def merged(spans: Iterable[tuple[N, N]]) -> list[tuple[N, N]]:
    """Return the union of spans as disjoint intervals, in order."""
    out: list[tuple[N, N]] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def covered(spans: Iterable[tuple[N, N]]) -> N:
    """Return the length of the union of spans."""
    total: N = 0
    for begin, end in merged(spans):
        total += end - begin
    return total


def with_parents(spans: Sequence[HostSpan]) -> Iterator[tuple[int, list[int]]]:
    """Yield each span's index and the indices of the enclosing spans of its thread, outermost first."""
    threads: dict[int, list[int]] = defaultdict(list)
    for i in sorted(range(len(spans)), key=lambda i: (spans[i].begin, -spans[i].end, i)):
        around = threads[spans[i].thread]
        while around and spans[around[-1]].end < spans[i].end:
            around.pop()
        while around and spans[around[-1]].end <= spans[i].begin:
            around.pop()
        yield i, list(around)
        around.append(i)
