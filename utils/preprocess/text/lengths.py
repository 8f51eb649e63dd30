"""How long texts may be, in tokens: what limits them, the lengths a model is fed, and what was cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

USUAL_LENGTHS = (16, 32, 64, 128)
"""Lengths there are plans for where nothing else is said; longer texts are cut."""

MAX_LENGTH = "max_length"
"""Key of what an export may store: tokens of a text at most, special ones included."""

CUT_TEXTS, CUT_TOKENS, KEPT = "cut_texts", "cut_tokens", "cut_texts_tokens_kept"
"""What :func:`count_cut` counts: texts that were cut, tokens left out of them, and tokens kept of them."""


def shortest(limits: Iterable[int | None]) -> int:
    """Return the least of some limits; those that are ``None`` or 0 limit nothing, and neither does a result of 0."""
    return min((limit for limit in limits if limit), default=0)


def planned(length: int, lengths: Sequence[int]) -> int:
    """Return the smallest planned length that holds a text; the text's own where none is planned or none does."""
    return min((one for one in lengths if one >= length), default=length)


def count_cut(contexts: Sequence[Any] | None) -> dict[str, int]:
    """Count what was cut of some texts, by their contexts' ``cut`` (tokens left out) and ``ids``; empty for nothing."""
    found = [(one.cut, len(one.ids)) for one in contexts or () if getattr(one, "cut", 0)]
    if not found:
        return {}
    return {CUT_TEXTS: len(found), CUT_TOKENS: sum(cut for cut, _ in found), KEPT: sum(kept for _, kept in found)}


def say_cut(counts: Mapping[str, int], samples: int, unit: str = "token") -> str:
    """Say in a line what was cut; empty where nothing was.

    Args:
        counts: of :func:`count_cut`. samples: of how many. unit: what texts are counted in.
    """
    texts, lost = counts.get(CUT_TEXTS, 0), counts.get(CUT_TOKENS, 0)
    if not texts:
        return ""
    of = "text" if samples == 1 else "texts"
    said = ("is", "was") if texts == 1 else ("are", "were")
    return (
        f"{texts} of {samples} {of} {said[0]} longer than {round(counts[KEPT] / texts)} {unit}s and {said[1]} cut; "
        f"{lost} {unit}{'' if lost == 1 else 's'} left out"
    )
