"""The smallest set of culprits, by a number of trials that grows with the logarithm of the candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Passes = Callable[[frozenset[str]], bool]


def smallest(candidates: Sequence[str], passes: Passes) -> list[str]:
    """Return a set of candidates that passes, of which none can be left out.

    The shortest passing prefix is sought by doubling and halving; its last candidate is needed, whatever else is. It is
    set aside, and the search goes on within the prefix until what was set aside passes by itself. (The quick case of
    delta debugging: Zeller and Hildebrandt, IEEE TSE 28(2), 2002.) With k culprits among n candidates that takes at
    most (k + 1) * (log2(n) + 1) + log2(n) trials, and about k * log2(k) where the candidates are ordered well.

    Args:
        candidates: names, the likeliest first.
        passes: says whether a set is enough. A set must not fail where a part of it passes; where that is not so, the
            result still passes, but may not be the smallest. It is asked at most once for a set.

    Returns:
        The culprits, the last in order first; empty where nothing is needed, all where even all of them do not pass.
    """
    known: dict[frozenset[str], bool] = {}

    def enough(names: Sequence[str]) -> bool:
        chosen = frozenset(names)
        if chosen not in known:
            known[chosen] = passes(chosen)
        return known[chosen]

    if enough([]):
        return []
    if not enough(candidates):
        return list(candidates)
    needed: list[str] = []
    rest = list(candidates)
    length = 1
    while not enough([*needed, *rest[:length]]):
        length *= 2
    low, high = length // 2 if length > 1 else 0, min(length, len(rest))
    while True:  # the first `high` of the rest are enough, the first `low` are not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough([*needed, *rest[:middle]]) else (middle, high)
        needed.append(rest[high - 1])
        rest = rest[: high - 1]
        if enough(needed):
            return needed
        low, high = 0, len(rest)
        if not enough([*needed, *rest]):  # not monotonic: what passed a moment ago was the same set
            return [*needed, *rest]
