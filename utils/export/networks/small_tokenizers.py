"""Tokenizers of the words of some texts, for models with random weights."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tecoinfer_modelzoo.extra import extra

PIECES = 1000
"""Maximum tokens of a byte-level tokenizer."""

_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"


def small_tokenizer(kind: str, texts: Iterable[str]) -> dict[str, Any]:
    """Return a reproducible tokenizer of the words of some texts; other words become letters.

    ``kind``: ``bert`` for lower-case word pieces, else RoBERTa's byte-level pairs. Raises ConfigError if the package
    ``tokenizers`` is not installed.
    """
    made: dict[str, Any] = json.loads(_word_pieces(texts) if kind == "bert" else _byte_pairs(texts))
    return made


def _word_pieces(texts: Iterable[str]) -> str:
    with extra("a tokenizer", "text"):
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())} - set(_LETTERS))
    known = [*_BERT, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), *words]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(known)}, unk_token=_BERT[1]))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.BertProcessing((_BERT[3], 3), (_BERT[2], 2))
    made.add_special_tokens(list(_BERT))
    return str(made.to_str())


def _byte_pairs(texts: Iterable[str]) -> str:
    with extra("a tokenizer", "text"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=PIECES, special_tokens=list(_ROBERTA), initial_alphabet=sorted(letters), show_progress=False
        ),
    )
    made.post_processor = processors.RobertaProcessing((_ROBERTA[2], 2), (_ROBERTA[0], 0))
    return str(made.to_str())
