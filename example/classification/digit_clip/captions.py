"""The tokenizer of the captions: a token per word, as Hugging Face's libraries write it."""

from __future__ import annotations

import json

from scenes import COLOURS, DIGITS, PLACES

PAD, UNKNOWN = "[PAD]", "[UNK]"


def tokenizer() -> str:
    """Return the text of a ``tokenizer.json``: lower case, words of the captions, all others unknown."""
    words = sorted({"a", *COLOURS, *DIGITS, *(word for place in PLACES for word in place.split())})
    known = {word: number for number, word in enumerate([PAD, UNKNOWN, *words])}
    special = [
        {"id": known[one], "content": one, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for one in (PAD, UNKNOWN)
    ]
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": special,
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": known, "unk_token": UNKNOWN},
        }
    )
