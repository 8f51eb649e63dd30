"""Lengths of texts in tokens: limits, planned lengths of inputs, and counts of truncated texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

USUAL_LENGTHS = (16, 32, 64, 128)
"""Default planned lengths; longer texts are truncated."""

MAX_LENGTH = "max_length"
"""Key of an export's metadata: maximum tokens of a text, with special ones."""

CUT_TEXTS, CUT_TOKENS, KEPT = "cut_texts", "cut_tokens", "cut_texts_tokens_kept"
"""Keys of :func:`count_truncated`: truncated texts, tokens left out of them, and tokens kept of them."""


def shortest(limits: Iterable[int | None]) -> int:
    """Return the smallest limit; ``None`` and 0 mean unlimited, and so does a result of 0."""
    return min((limit for limit in limits if limit), default=0)


def planned(length: int, lengths: Sequence[int]) -> int:
    """Return the smallest planned length for a text; its own length if there is none."""
    return min((one for one in lengths if one >= length), default=length)


def count_truncated(contexts: Sequence[Any] | None) -> dict[str, int]:
    """Count truncated texts, by their contexts' ``cut`` (tokens left out) and ``ids``; empty if there are none."""
    found = [(one.cut, len(one.ids)) for one in contexts or () if getattr(one, "cut", 0)]
    if not found:
        return {}
    return {CUT_TEXTS: len(found), CUT_TOKENS: sum(cut for cut, _ in found), KEPT: sum(kept for _, kept in found)}


def truncation_line(counts: Mapping[str, int], samples: int, unit: str = "token") -> str:
    """Return a line about the :func:`count_truncated` texts of all samples; empty if there are none."""
    texts, lost = counts.get(CUT_TEXTS, 0), counts.get(CUT_TOKENS, 0)
    if not texts:
        return ""
    of = "text" if samples == 1 else "texts"
    verbs = ("is", "was") if texts == 1 else ("are", "were")
    return (
        f"{texts} of {samples} {of} {verbs[0]} longer than {round(counts[KEPT] / texts)} {unit}s and {verbs[1]} cut; "
        f"{lost} {unit}{'' if lost == 1 else 's'} left out"
    )
