"""Tokenizers of Marian's folders (``source.spm``, ``target.spm``, ``vocab.json``) as contents of a ``tokenizer.json``.

The first two are SentencePiece's unigram models, for pieces and their scores (Kudo, "Subword Regularization", 2018); a
piece's number is that in ``vocab.json``. The files are read without the package sentencepiece.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine import ModelError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import one_line

FILES = SOURCE, TARGET, TABLE = ("source.spm", "target.spm", "vocab.json")
"""Files of a folder."""

END, UNKNOWN, PAD = SPECIAL = ("</s>", "<unk>", "<pad>")

NORMAL, USER = 1, 4
"""Types of pieces that a text can have."""

UNIGRAM = 1
"""Type of the models that are supported."""

BLANK = "\u2581"
"""Character in place of a blank."""

UNUSED = "\U000f0000"
"""First character of the name of a token that no source has; it is in no text."""


class Pieces(NamedTuple):
    """Content of an ``.spm`` file.

    Attributes:
        scores: of each piece. rules: compiled normalization of characters; empty: none.
        squeezed: blanks at the ends, and repeated ones, are removed.
    """

    scores: dict[str, float]
    rules: bytes
    squeezed: bool


def has_marian_tokenizers(folder: Path) -> bool:
    """Return whether a folder has the files."""
    return all((folder / name).is_file() for name in FILES)


def marian_tokenizers(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of the ``tokenizer.json`` of sources, and of translations, which is for decoding only.

    The tokens are those of transformers' ``MarianTokenizer`` without the package sacremoses. Pieces that have no number
    are left out.

    Raises ModelError: a file is damaged, has another algorithm than unigram, or lacks a special token.
    """
    table = _table(folder / TABLE)
    source, target = (_pieces(folder / name) for name in (SOURCE, TARGET))
    lowest = min(source.scores.values())  # the score of unknown characters depends on the lowest one
    known = [(name, source.scores.get(name)) for name in table]
    named = [
        (name if name in SPECIAL or _is_code(name) else f"{UNUSED}{place}", lowest) if score is None else (name, score)
        for place, (name, score) in enumerate(known)
    ]
    decoded = [(name, target.scores.get(name, lowest)) for name in table]
    return _description(table, named, source), _description(table, decoded, target)


def _is_code(token: str) -> bool:
    """Return whether a token names a language, such as ``>>fra<<``."""
    return token.startswith(">>") and token.endswith("<<")


def _table(path: Path) -> list[str]:
    """Return the tokens in the order of their numbers."""
    try:
        found = json.loads(read_regular(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({one_line(error)}); get the file again") from error
    if not isinstance(found, dict) or sorted(found.values(), key=repr) != sorted(range(len(found)), key=repr):
        raise ModelError(f"{path}: does not have a token for each number from 0; get the file again")
    missing = [token for token in SPECIAL if token not in found]
    if missing:
        raise ModelError(f"{path}: has no token {missing[0]}; use the model's own file")
    return sorted(found, key=lambda token: found[token])


def _pieces(path: Path) -> Pieces:
    """Read an ``.spm`` file (a protocol buffer, ``sentencepiece_model.proto``)."""
    scores: dict[str, float] = {}
    trainer: Mapping[int, Any] = {}
    rules: Mapping[int, Any] = {}
    try:
        for number, value in _fields(read_regular(path)):
            if number == 1:
                piece = dict(_fields(value))
                if piece.get(3, NORMAL) in (NORMAL, USER):
                    scores[piece[1].decode()] = struct.unpack("<f", piece.get(2, bytes(4)))[0]
            elif number == 2:
                trainer = dict(_fields(value))
            elif number == 3:
                rules = dict(_fields(value))
    except (OSError, ValueError, KeyError, AttributeError, IndexError, TypeError, struct.error) as error:
        raise ModelError(f"{path}: not a SentencePiece model ({one_line(error)}); get the file again") from error
    kind = trainer.get(3, UNIGRAM)
    if kind != UNIGRAM or not scores:
        raise ModelError(f"{path}: is not a unigram model (type {kind}, {len(scores)} pieces); convert it yourself")
    return Pieces(scores, bytes(rules.get(2, b"")), bool(rules.get(4, 1)))


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: numbers as integers, others as bytes. Raises IndexError or ValueError."""
    place = 0
    while place < len(content):
        key, place = _varint(content, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(content, place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, place = _varint(content, place)
        if size is None or place + size > len(content):
            raise ValueError(f"byte {place} is not a field")
        yield key >> 3, content[place : place + size]
        place += size


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError(f"byte {place} is not part of a number")


def _description(table: list[str], vocabulary: list[tuple[str, float]], pieces: Pieces) -> dict[str, Any]:
    """Return the content of a ``tokenizer.json``."""
    codes = filter(_is_code, table)
    added = [(table.index(name), name, name in SPECIAL) for name in (*SPECIAL, *codes)]
    end = {"SpecialToken": {"id": END, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    steps: list[dict[str, Any]] = []
    if pieces.rules:
        steps.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(pieces.rules).decode()})
    if pieces.squeezed:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    blanks = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": special,
            }
            for number, name, special in sorted(added)
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": blanks,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, second, end],
            "special_tokens": {END: {"id": END, "ids": [table.index(END)], "tokens": [END]}},
        },
        "decoder": blanks,
        "model": {
            "type": "Unigram",
            "unk_id": table.index(UNKNOWN),
            "vocab": [list(one) for one in vocabulary],
            "byte_fallback": False,
        },
    }  # fmt: skip
