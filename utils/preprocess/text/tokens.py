"""Texts as a model's own tokenizer numbers them: a ``tokenizer.json`` as Hugging Face's libraries write it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, ModelError, TargetError, reason_of
from tecoinfer_modelzoo import install_command

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def tokenized(texts: Sequence[str], description: Any, length: int, ckpt: object) -> tuple[Array, Array]:
    """Return the tokens' numbers and what of them is text, both T x ``length`` int64.

    Args:
        texts: T of them.
        description: the tokenizer's JSON, as an object.
        length: numbers per text; the rest is 0.
        ckpt: the model, for messages.

    Raises:
        ConfigError: a text is empty or has more tokens.
        ModelError: the description is none of a tokenizer.
        TargetError: the package ``tokenizers`` is not installed.
    """
    tokenizer = _tokenizer(json.dumps(description, sort_keys=True), str(ckpt))
    numbers, known = np.zeros((2, len(texts), length), np.int64)
    for i, text in enumerate(texts):
        if not text.strip():
            raise ConfigError(f"text {i} is empty; write what to look for")
        found = tokenizer.encode(text).ids
        if len(found) > length:
            raise ConfigError(f"{text!r} has {len(found)} tokens, {ckpt} takes {length}; write a shorter text")
        numbers[i, : len(found)], known[i, : len(found)] = found, 1
    return numbers, known


@lru_cache(maxsize=4)
def _tokenizer(description: str, ckpt: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise TargetError(f"{error.name} is not installed; run: {install_command('text')}") from error
    try:
        found = Tokenizer.from_str(description)
    except Exception as error:  # the library raises the bare class
        raise ModelError(
            f"{ckpt}: its tokenizer cannot be read ({reason_of(error)}); export the model again"
        ) from error
    found.no_padding()
    found.no_truncation()
    return found
