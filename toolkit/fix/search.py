"""The smallest set of candidates that passes a test, in about k * log2(n) trials for k of n."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Passes = Callable[[frozenset[str]], bool]


def smallest(candidates: Sequence[str], passes: Passes, likely: int = 1) -> list[str]:
    """Return a set of candidates that passes, of which none can be left out.

    The shortest passing prefix is sought by doubling and halving; its last candidate is needed, whatever else is. It is
    set aside, and the search goes on within the prefix until what was set aside passes by itself. (The quick case of
    delta debugging: Zeller and Hildebrandt, IEEE TSE 28(2), 2002.) Each time the candidate before the one set aside is
    tried first: where the candidates are ordered well, the culprits stand side by side, and that trial decides. With k
    culprits among n candidates it takes at most (k + 2) * (log2(n) + 2) trials, and about k where they are the first k.

    Args:
        candidates: names, the likeliest first.
        passes: says whether a set is enough. A set must not fail where a part of it passes; where that is not so, the
            result still passes, but may not be the smallest. It is asked at most once for a set.
        likely: length of the prefix to try first.

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
    low, high = 0, max(1, min(likely, len(candidates)))
    while not enough(candidates[:high]):
        low, high = high, min(2 * high, len(candidates))
    needed: list[str] = []
    rest = list(candidates)
    while rest:  # beside what is needed the first `high` of the rest are enough, the first `low` are not (-1: unknown)
        if high - 1 > low and enough([*needed, *rest[: high - 1]]):
            high -= 1
            if enough(needed):
                break
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if enough([*needed, *rest[:middle]]) else (middle, high)
        needed.append(rest[high - 1])
        rest = rest[: high - 1]
        low, high = -1, len(rest)
    return needed
