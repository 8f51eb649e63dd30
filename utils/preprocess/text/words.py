"""A simple tokenizer: lower-case words, numbered by a model's own vocabulary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from engine import Array, ModelError

UNKNOWN = ("<unk>", "[UNK]")
"""Tokens for unknown words."""

_WORD = re.compile(r"\w+(?:'\w+)*")


def words(text: str) -> list[str]:
    """Return the words of a text: runs of letters, digits and underscores, with apostrophes within them.

    The text is first normalised to Unicode NFC and lower-cased (``str.lower``); all other characters separate words.
    """
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))


def numbered(vocabulary: Sequence[str], name: str = "the model") -> tuple[dict[str, int], int]:
    """Return every token's number, its index in the vocabulary, and the number of unknown words.

    The first of equal tokens counts. Raises ModelError if the vocabulary has no token of :data:`UNKNOWN`.
    """
    known = {token: number for number, token in reversed(list(enumerate(vocabulary)))}
    unknown = next((known[token] for token in UNKNOWN if token in known), None)
    if unknown is None:
        raise ModelError(f"{name}: its vocabulary has no token {' or '.join(UNKNOWN)} for unknown words; add one")
    return known, unknown


def encode(text: str, known: Mapping[str, int], unknown: int, max_length: int = 0) -> Array:
    """Return the numbers of a text's words as int64; a text without words is one unknown word.

    ``known`` and ``unknown`` are the result of :func:`numbered`; only the first ``max_length`` words are kept, 0: all.
    """
    found = [known.get(word, unknown) for word in words(text)] or [unknown]
    return np.array(found[:max_length] if max_length else found, np.int64)
