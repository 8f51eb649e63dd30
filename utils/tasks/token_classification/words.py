"""From the words of sentences to tokens, and back: which token has the tag of a word."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ModelError
from utils.datasets.text.tagged import Sentence, sentence_of
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.preprocess.text.words import numbered
from utils.stored import ModelMetadata
from utils.tasks import Model

FIRST, LAST = SUBWORDS = ("first", "last")
"""The token of a word that has the word's tag."""


class Aligned(NamedTuple):
    """Context of a sentence.

    Attributes:
        words: the sentence's words.
        places: index of the token that has each word's tag, int64 [W]; -1: a word without a token, or cut off.
        ids: the token numbers, int64 [L]. cut: number of tokens left out.
    """

    words: tuple[str, ...]
    places: Array
    ids: Array
    cut: int = 0


def aligned(sentence: Sentence, encoded: Encoded, spaced: Sentence, subword: str) -> Aligned:
    """Return which token has the tag of each word.

    A token belongs to the first word that ends after its begin; a token of the space before a word belongs to it.

    Args:
        sentence: the words. encoded: the tokens of the text of ``spaced``: the same words, with single spaces.
        subword: one of :data:`SUBWORDS`.
    """
    ends = np.array([start + len(word) for start, word in zip(spaced.starts, spaced.words, strict=True)], np.int64)
    tokens = np.flatnonzero((encoded.part == 0) & (encoded.spans[:, 1] > encoded.spans[:, 0]))
    owners = np.searchsorted(ends, encoded.spans[tokens, 0], side="right")
    places = np.full(len(sentence.words), -1, np.int64)
    within = owners < len(places)
    order = slice(None, None, -1) if subword == FIRST else slice(None)  # of equal owners the one assigned last is kept
    places[owners[within][order]] = tokens[within][order]
    return Aligned(sentence.words, places, encoded.ids, encoded.cut)


def tokenized(
    samples: Sequence[Sentence], tokens: Tokens, limit: int, lower: bool, subword: str
) -> tuple[list[Encoded], list[Aligned]]:
    """Return the tokens of each sentence, and their alignment with its words.

    ``limit``: maximum tokens, 0: no limit. ``lower``: whether the model was trained on lower-case text. Raises
    DataError if a sentence has no tokens.
    """
    spaced = [sentence_of([word.lower() if lower else word for word in sample.words]) for sample in samples]
    encoded = tokens.encode([one.text for one in spaced], limit)
    rows = zip(samples, encoded, spaced, strict=True)
    return encoded, [aligned(sample, one, text, subword) for sample, one, text in rows]


def looked_up(samples: Sequence[Sentence], model: Model, limit: int) -> tuple[list[Encoded], list[Aligned]]:
    """Return one token per word, its number in the vocabulary that the model stores, in lower case.

    ``limit``: maximum words, 0: no limit. Raises ModelError if no vocabulary is stored.
    """
    text = model.metadata.get("vocabulary")
    if text is None:
        raise ModelError(
            f"{model.ckpt}: its metadata has neither a tokenizer nor a vocabulary; export the model with one, or pass "
            "--tokenizer tokenizer.json"
        )
    known, unknown = _vocabulary(text, model.ckpt)
    encoded, contexts = [], []
    for sample in samples:
        numbers = np.array([known.get(word.lower(), unknown) for word in sample.words], np.int64)
        ids = numbers[: limit or None]
        nothing, cut = np.zeros_like(ids), len(numbers) - len(ids)
        encoded.append(Encoded(ids, nothing, np.stack([nothing, nothing], 1), nothing, cut))
        places = np.where(np.arange(len(numbers)) < len(ids), np.arange(len(numbers)), -1)
        contexts.append(Aligned(sample.words, places, ids, cut))
    return encoded, contexts


@lru_cache(maxsize=8)
def _vocabulary(text: str, ckpt: Path) -> tuple[dict[str, int], int]:
    return numbered(ModelMetadata({"vocabulary": text}, ckpt).vocabulary or [], str(ckpt))
