"""Search for the smallest set of candidates that passes a test, in about k * log2(n) trials for k of n."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Passes = Callable[[frozenset[str]], bool]


def smallest(candidates: Sequence[str], passes: Passes, likely: int = 1) -> list[str]:
    """Return a minimal set of candidates that passes (none can be removed), the last in order first; all if none
    passes.

    The shortest passing prefix is found by doubling and bisection. Its last candidate is needed; it is set aside, and
    the search continues within the prefix until the candidates set aside pass alone (the quick case of delta debugging:
    Zeller and Hildebrandt, IEEE TSE 28(2), 2002). The candidate before the one set aside is tried first, since needed
    candidates are adjacent in a good order. With k of n candidates needed, the search takes at most (k + 2) * (log2(n)
    + 2) trials, and about k if they are the first k.

    Args:
        candidates: names, the likeliest first.
        passes: returns whether a set is enough, called at most once per set. If a set can fail although a subset
            passes, the result still passes but may not be minimal.
        likely: length of the prefix to try first.
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
    while rest:  # with `needed`, the first `high` of the rest are enough, the first `low` are not (-1: unknown)
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
