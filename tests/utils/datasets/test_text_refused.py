"""Texts and files that nobody can have meant: refused in one line, before they take minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import ConfigError, DataError, write_file
from utils.datasets.retrieval import read_candidates, read_texts
from utils.datasets.text_table import read_table


def test_what_is_no_text_is_said_once(tmp_path: Path) -> None:
    binary, objects, good = tmp_path / "a.tsv", tmp_path / "a.jsonl", tmp_path / "b.tsv"
    binary.write_bytes(b"\xff\xfe\x01"[::-1] + b"\xd8\t\xd9\n")
    objects.write_bytes(b"\xff\x01\n\xd8\n")
    good.write_text("text\tlabel\nx\t1\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: not UTF-8 text; save the file as UTF-8"):
        read_table(binary)
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON .*; 2 lines, and none can be used"):
        read_table(objects)
    with pytest.raises(ConfigError, match="--encoding 'hex' is not known"):
        read_table(good, encoding="hex")
    with pytest.raises(DataError, match="is a folder; check --data_path"):
        read_texts(tmp_path)
    with pytest.raises(DataError, match=r"names no candidate for any query; line 1: not: query Q0 passage"):
        read_candidates(good, {"q": ""}, {"p": ""})


def test_a_text_without_end_costs_itself() -> None:
    pytest.importorskip("tokenizers")
    import json

    from utils.export.small_tokenizers import small_tokenizer
    from utils.preprocess.text.tokens import MOST_CHARACTERS, Tokens

    tokens = Tokens(json.dumps(small_tokenizer("bert", ["a b"])), "m")
    with pytest.raises(DataError, match=f"characters, and {MOST_CHARACTERS} are read at most"):
        tokens.encode(["a" * (MOST_CHARACTERS + 1)])


def test_a_pipe_is_written_to_and_kept(tmp_path: Path) -> None:
    """Such as /dev/stdout, which a file would otherwise take the place of."""
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
