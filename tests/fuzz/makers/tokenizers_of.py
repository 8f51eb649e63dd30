"""Tokenizers with hostile or expensive parts."""

from __future__ import annotations

import random
from typing import Any

from tests.fuzz.makers.values_of import change, odd_value


def changed_tokenizer(rng: random.Random, whole: Any) -> str:
    """Change a tokenizer's description: any value, or an expensive part."""
    if rng.random() < 0.5:
        at = rng.choice(
            ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "truncation", "padding")
        )
        if isinstance(whole.get(at), (dict, list)) and whole[at] and rng.random() < 0.5:
            return f"{at}/{change(whole[at], rng)}"
        whole[at] = odd_value(rng)
        return f"{at}: {str(whole[at])[:40]!r}"
    slow = {"Regex": rng.choice(("(a+)+$", "(a|aa)+$", "(", "a{1000000}", "(?=a)*", "\\p{L}*" * 500, "(.*)*x"))}
    changes: dict[str, Any] = {
        "normalizer": {"type": "Replace", "pattern": slow, "content": "b"},
        "pre_tokenizer": {"type": "Split", "pattern": slow, "behavior": "Isolated", "invert": False},
        "truncation": {"direction": "Right", "max_length": rng.choice((0, 1, 2**40)), "strategy": "LongestFirst",
            "stride": 9},
        "padding": {
            "strategy": {"Fixed": 2**33}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": rng.choice((0, 2**32 - 1)), "pad_type_id": 0, "pad_token": "x",
        },
        "added_tokens": [
            {
                "id": rng.choice((0, 7, 2**31, 2**32 - 1)), "content": rng.choice(("", "\0", "a", "\x1b")),
                "single_word": False, "lstrip": True, "rstrip": True, "normalized": False, "special": True,
            }
        ],
        "post_processor": {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
        "decoder": None,
    }  # fmt: skip
    kind = rng.choice((*changes, "vocab"))
    if kind != "vocab":
        whole[kind] = changes[kind]
        return f"{kind}: {str(whole[kind])[:80]}"
    vocab = whole["model"]["vocab"]
    if not isinstance(vocab, dict) or not vocab:
        return "no vocabulary"
    word = rng.choice(list(vocab))
    vocab[word] = rng.choice((0, 2**31, 2**32 - 1, 2**32, -1, "1", None, 1.5))
    return f"{word!r} is {vocab[word]}"
