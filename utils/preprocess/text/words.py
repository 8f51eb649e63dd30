"""A tiny tokeniser: lower-case words, numbered by a model's own vocabulary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from engine import Array, ModelError

UNKNOWN = ("<unk>", "[UNK]")
"""How a vocabulary may write the token that stands for every word it lacks."""

_WORD = re.compile(r"\w+(?:'\w+)*")


def words(text: str) -> list[str]:
    """Return the words of a text: runs of letters, digits and underscores, with apostrophes within them.

    The text is brought to Unicode's form NFC and to lower case (``str.lower``) first; everything else parts words.
    """
    return _WORD.findall(unicodedata.normalize("NFC", text).lower().replace("’", "'"))


def numbered(vocabulary: Sequence[str], name: str = "the model") -> tuple[dict[str, int], int]:
    """Return every token's number, its place in the vocabulary, and the number of unknown words.

    Args:
        vocabulary: tokens in the order of their numbers; of equal ones the first counts.
        name: what an error calls the model.

    Raises:
        ModelError: the vocabulary has no token of :data:`UNKNOWN`.
    """
    known = {token: number for number, token in reversed(list(enumerate(vocabulary)))}
    unknown = next((known[token] for token in UNKNOWN if token in known), None)
    if unknown is None:
        raise ModelError(f"{name}: its vocabulary has no token {' or '.join(UNKNOWN)} for words it lacks; add one")
    return known, unknown


def encode(text: str, known: Mapping[str, int], unknown: int, max_length: int = 0) -> Array:
    """Return the numbers of a text's words as int64; a text without words is one unknown word.

    Args:
        text: any text.
        known, unknown: what :func:`numbered` returned.
        max_length: words to keep, the first ones; 0 keeps all.
    """
    found = [known.get(word, unknown) for word in words(text)] or [unknown]
    return np.array(found[:max_length] if max_length else found, np.int64)
