"""Invalid texts and files: one-line errors without delay."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import write_file
from utils.datasets.text import pair_rows
from utils.datasets.text.retrieval import read_candidates, read_texts
from utils.datasets.text.sentence_pairs import load_sentences
from utils.datasets.text.tables import read_table
from utils.datasets.text.texts import load_texts


def test_files_that_are_not_text(tmp_path: Path) -> None:
    binary, objects, good = tmp_path / "a.tsv", tmp_path / "a.jsonl", tmp_path / "b.tsv"
    binary.write_bytes(b"\xff\xfe\x01"[::-1] + b"\xd8\t\xd9\n")
    objects.write_bytes(b"\xff\x01\n\xd8\n")
    good.write_text("text\tlabel\nx\t1\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: not UTF-8 text"):
        read_table(binary)
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON.*2 lines"):
        read_table(objects)
    with pytest.raises(ConfigError, match="--encoding 'hex'"):
        read_table(good, encoding="hex")
    (tmp_path / "c.tsv").write_text("text\tlabel\n" + "x." * 99 + "..\n")
    with pytest.raises(DataError, match=r"c\.tsv: .*IDNA text"):
        read_table(tmp_path / "c.tsv", encoding="idna")
    with pytest.raises(DataError, match="is a folder; check --data_path"):
        read_texts(tmp_path)
    with pytest.raises(DataError, match=r"no candidate .*line 1: .*Q0"):
        read_candidates(good, {"q": ""}, {"p": ""})


def test_a_text_that_is_too_long() -> None:
    pytest.importorskip("tokenizers")
    import json

    from utils.export.networks.small_tokenizers import small_tokenizer
    from utils.preprocess.text.tokens import MOST_CHARACTERS, Tokens

    tokens = Tokens(json.dumps(small_tokenizer("bert", ["a b"])), "m")
    with pytest.raises(DataError, match=f"more than {MOST_CHARACTERS}"):
        tokens.encode(["a" * (MOST_CHARACTERS + 1)])


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Such as /dev/stdout, which must not be replaced by a file."""
    import os
    import threading

    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, b"a", b"b")
    reader.join(10)
    assert got == [b"ab"]
    assert pipe.is_fifo()


def test_a_pipe_instead_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    os.mkfifo(tmp_path / "f" / "a.tsv")
    with pytest.raises(DataError, match=r"a\.tsv .*is a pipe"):
        read_table(tmp_path / "f" / "a.tsv")
    with pytest.raises(DataError, match=r"has no \.tsv"):
        load_sentences(tmp_path / "f")


@pytest.mark.parametrize("value", ["1" + "0" * 400, "NaN", "[" * 400 + "]" * 400, '"' + "x" * 5000 + '"', "true"])
def test_invalid_numbers(value: str, tmp_path: Path) -> None:
    pairs, texts = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    pairs.write_text(f'{{"sentence1": "a", "sentence2": "b", "score": {value}}}\n')
    texts.write_text(f'{{"text": "a", "label": "x", "rating": {value}}}\n')
    for load, file in ((load_sentences, pairs), (load_texts, texts)):
        with pytest.raises(DataError, match="not a number") as caught:
            load(file)
        assert len(str(caught.value)) < 500


def test_an_unclosed_field(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\ngood,1\n" + "x" * 200_000 + ",1\n")
    found = read_table(tmp_path / "a.csv")
    assert [row.number for row in found.rows] == [2]
    assert "a field of more than 131072 characters" in found.rejected[0].reason


def test_candidates_with_nan_scores_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("q Q0 a 1 nan r\nq Q0 b 2 0.5 r\nq Q0 c 3 0.7 r\n")
    found, rejected = read_candidates(tmp_path / "r.txt", {"q": ""}, {"a": "", "b": "", "c": ""})
    assert found == {"q": [2, 1]}
    assert [one.path.name for one in rejected] == ["r.txt:1"]


def test_decompression_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_rows, "MOST_UNPACKED", 1000)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b" " * 100_000))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", b" " * 100_000)
    for rows in (pair_rows.read_rows(tmp_path / "a.jsonl.gz"), pair_rows.split_of(tmp_path)):
        with pytest.raises(DataError, match="more than 1000 bytes"):
            list(rows)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"abc" * 99)[:12] + b"\xff" * 30)
    with pytest.raises(DataError, match="cannot be read"):
        list(pair_rows.read_rows(tmp_path / "a.jsonl.gz"))
    (tmp_path / "a.jsonl").write_text("[" * 100_000)
    with pytest.raises(DataError, match="no pair of texts"):
        pair_rows.read_pairs(pair_rows.read_rows(tmp_path / "a.jsonl"), pair_rows.SENTENCES, "a")
