"""Parallel texts: two files, tables, JSON lines with several references, sources alone, and invalid rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import DataError
from utils.datasets.text.parallel import load_pairs


def file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def lines(folder: Path, name: str, *rows: object) -> Path:
    return file(folder, name, "".join(json.dumps(row) + "\n" for row in rows))


def test_two_files_and_more_references(tmp_path: Path) -> None:
    paths = {"src": file(tmp_path, "a.en", "one\n\ntwo\n"), "ref": file(tmp_path, "a.fr", "un\n\ndeux\n")}
    found = load_pairs(paths)
    assert (found.samples, found.targets) == (["one", "two"], [("un",), ("deux",)])
    assert found.names == ["a.en:1", "a.en:3"]
    assert not found.rejected
    more = load_pairs({**paths, "ref2": file(tmp_path, "b.fr", "1\n\n2\n")})
    assert more.targets == [("un", "1"), ("deux", "2")]
    assert load_pairs(paths, references=False).targets is None


def test_files_of_different_lengths_and_empty_lines(tmp_path: Path) -> None:
    source = file(tmp_path, "a.en", "one\ntwo\n")
    with pytest.raises(DataError, match=r"a\.fr has 1 lines and .*a\.en has 2"):
        load_pairs({"src": source, "ref": file(tmp_path, "a.fr", "un\n")})
    found = load_pairs({"src": source, "ref": file(tmp_path, "a.fr", "un\n\n")})
    assert [one.path.name for one in found.rejected] == ["a.en:2"]
    assert found.samples == ["one"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "source\ttarget\none\tun\n"),
        ("a.csv", "src,ref\none,un\n"),
        ("a.jsonl", '{"source": "one", "target": "un"}\n'),
        ("b.jsonl", '{"translation": {"en": "one", "fr": "un"}}\n'),
        ("a.json", '[{"text": "one", "references": ["un"]}]'),
    ],
)
def test_tables(name: str, text: str, tmp_path: Path) -> None:
    found = load_pairs({"data": file(tmp_path, name, text)})
    assert (found.samples, found.targets) == (["one"], [("un",)])


def test_columns_and_languages_are_chosen(tmp_path: Path) -> None:
    table = file(tmp_path, "a.tsv", "English text\tFrench text\none\tun\n")
    with pytest.raises(DataError, match="--source_column"):
        load_pairs({"data": table})
    assert load_pairs({"data": table}, source="English text", target="French text").targets == [("un",)]
    three = lines(tmp_path, "c.jsonl", {"translation": {"en": "one", "fr": "un", "de": "eins"}})
    with pytest.raises(DataError, match="en, fr, de"):
        load_pairs({"data": three})
    assert load_pairs({"data": three}, source="de", target="en").targets == [("one",)]


def test_sources_alone(tmp_path: Path) -> None:
    assert load_pairs({"data": file(tmp_path, "a.txt", "one\n\ntwo\n")}).samples == ["one", "two"]
    assert load_pairs({"data": file(tmp_path, "a.tsv", "source\none\n")}).targets is None


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"source": "", "target": "un"}, "'source'"),
        ({"source": "two", "target": [1]}, "'target'"),
        ({"source": "two"}, "no translation"),
        ({"target": "un"}, "'source'"),
    ],
)
def test_invalid_rows(row: Any, why: str, tmp_path: Path) -> None:
    found = load_pairs({"data": lines(tmp_path, "a.jsonl", {"source": "one", "target": "un"}, row)})
    assert found.samples == ["one"]
    assert why in found.rejected[0].reason


def test_invalid_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\ntw\xff\n")
    assert [one.path.name for one in load_pairs({"data": tmp_path / "a.txt"}).rejected] == ["a.txt:2"]


def test_unusable_paths(tmp_path: Path) -> None:
    source = file(tmp_path, "a.en", "one\n")
    with pytest.raises(DataError, match="src=FILE ref=FILE"):
        load_pairs({"source": source, "target": source})
    with pytest.raises(DataError, match="not a file of texts"):
        load_pairs({"data": source})
    with pytest.raises(DataError, match="does not exist"):
        load_pairs({"data": tmp_path / "none.tsv"})
    with pytest.raises(DataError, match="no text that can be used"):
        load_pairs({"data": file(tmp_path, "e.txt", "\n")})
