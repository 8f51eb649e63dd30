"""Tokenizers of Marian's own files: tokens, texts, and files that are refused; the same tokens as transformers'."""

from __future__ import annotations

import contextlib
import json
import struct
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("tokenizers")

from engine import ModelError
from utils.export.marian_tokenizers import has_marian_tokenizers, marian_tokenizers
from utils.preprocess.text.tokens import Tokens

PIECES = {"▁the": -2.0, "▁cat": -3.0, "s": -4.0, "▁": -5.0, "c": -6.0, "a": -6.0, "t": -6.0, "▁th": -6.0, "e": -6.0}
TABLE = ["</s>", "<unk>", *PIECES, "▁chat", ">>fra<<", "<pad>"]


def field(number: int, value: bytes | int | float) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def spm(pieces: dict[str, float], kind: int = 1, squeezed: int = 1) -> bytes:
    """Return a SentencePiece model, with the three special pieces in front."""
    special = [(name, 0.0, 2 if name == "<unk>" else 3) for name in ("<unk>", "<s>", "</s>")]
    rows = [*special, *((name, score, 1) for name, score in pieces.items())]
    found = b"".join(field(1, field(1, name.encode()) + field(2, score) + field(3, of)) for name, score, of in rows)
    return found + field(2, field(3, kind)) + field(3, field(1, b"identity") + field(4, squeezed))


def folder(place: Path, table: list[str] | None = None, source: bytes | None = None) -> Path:
    (place / "source.spm").write_bytes(spm(PIECES) if source is None else source)
    (place / "target.spm").write_bytes(spm({"▁chat": -1.0, "s": -2.0}))
    names = TABLE if table is None else table
    (place / "vocab.json").write_text(json.dumps({name: number for number, name in enumerate(names)}))
    return place


def tokens_of(place: Path) -> tuple[Tokens, Tokens]:
    source, target = marian_tokenizers(place)
    return Tokens(json.dumps(source), "source"), Tokens(json.dumps(target), "target")


def test_sources_and_translations(tmp_path: Path) -> None:
    assert not has_marian_tokenizers(tmp_path)
    assert has_marian_tokenizers(folder(tmp_path))
    source, target = tokens_of(tmp_path)
    end, unknown = TABLE.index("</s>"), TABLE.index("<unk>")

    def encoded(text: str) -> list[int]:
        return source.encode([text])[0].ids.tolist()

    the, cat, plural = (TABLE.index(name) for name in ("▁the", "▁cat", "s"))
    assert encoded("the cats") == encoded("  the   cats ") == [the, cat, plural, end]
    assert encoded(">>fra<< the cats") == [TABLE.index(">>fra<<"), the, cat, plural, end]
    assert encoded("the 犬犬") == [the, TABLE.index("▁"), unknown, end]
    assert encoded("chat") == [TABLE.index(name) for name in ("▁", "c")] + [unknown] + [
        TABLE.index(name) for name in ("a", "t")
    ] + [end], "a token of translations only is none of a source"
    assert target.decode([TABLE.index("▁chat"), plural, TABLE.index("▁the"), end]) == "chats the"
    assert source.size == target.size == len(TABLE)
    assert target.pad == TABLE.index("<pad>")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"source": b"\x0a\xff"}, "source.spm: not a SentencePiece model"),
        ({"source": b"no model"}, "source.spm: not a SentencePiece model"),
        ({"source": spm(PIECES, kind=2)}, r"not a unigram model \(type 2"),
        ({"source": b""}, "0 pieces"),
        ({"table": TABLE[:-1]}, "no token <pad>"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    folder(tmp_path, **change)
    with pytest.raises(ModelError, match=text) as caught:
        marian_tokenizers(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["[", "[]", '{"</s>": 1}', '{"</s>": "0"}', '{"a": 0, "b": 0}', '{"a": true}'])
def test_tables_that_are_refused(tmp_path: Path, content: str) -> None:
    folder(tmp_path)
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(ModelError, match=r"vocab\.json"):
        marian_tokenizers(tmp_path)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(spm(PIECES)) - 1), st.binary(min_size=1, max_size=6))
def test_damaged_models_raise_one_error(tmp_path_factory: pytest.TempPathFactory, place: int, other: bytes) -> None:
    content = spm(PIECES)
    home = tmp_path_factory.mktemp("damaged")
    folder(home, source=content[:place] + other + content[place + len(other) :])
    with contextlib.suppress(ModelError):  # any other error fails
        marian_tokenizers(home)


TEXTS = (
    "The cat sat on the mat. The dogs and cats run over there, quickly!",
    "A conference number: please enter 42 followed by the pound key.",
    "Ça va très bien; l'été est là. Où est la bibliothèque ?",
    "ﬁne ① ｆｕｌｌ width\tand   blanks",
)


@pytest.mark.slow
def test_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    """Models trained by SentencePiece, with its normalization of characters, as OPUS-MT's are."""
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("transformers")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 20), encoding="utf-8")
    names: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for side, size in (("source", 90), ("target", 70)):
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / "texts.txt"), model_prefix=str(tmp_path / side), vocab_size=size,
            character_coverage=1.0, hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (tmp_path / f"{side}.model").rename(tmp_path / f"{side}.spm")
        known = sentencepiece.SentencePieceProcessor(str(tmp_path / f"{side}.spm"))
        for number in range(3, known.get_piece_size()):
            names.setdefault(known.id_to_piece(number), len(names))
    names |= {">>fra<<": len(names), "<pad>": len(names) + 1}
    (tmp_path / "vocab.json").write_text(json.dumps(names), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends sacremoses
        from transformers import MarianTokenizer

        golden = MarianTokenizer(*(str(tmp_path / name) for name in ("source.spm", "target.spm", "vocab.json")))
    source, target = tokens_of(tmp_path)
    for text in (*TEXTS, ">>fra<< The cat", "unknown: 犬 and 猫猫", "  blanks at   the ends "):
        ids = golden(text)["input_ids"]
        assert source.encode([text])[0].ids.tolist() == ids, text
        assert target.decode(ids).strip() == golden.decode(ids, skip_special_tokens=True).strip()
