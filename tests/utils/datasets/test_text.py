"""Texts and labels: every format gives the same data set, and bad lines are named."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from engine import DataError
from utils.datasets.text import load_texts

ROWS = [("Good, really", "positive"), ('He said "no"', "negative"), ("短い文", "positive")]


def as_csv(rows: list[tuple[str, str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([("text", "label"), *rows])
    return stream.getvalue()


def written(rows: list[tuple[str, str]], folder: Path) -> list[Path]:
    texts = {
        "a.tsv": "label\ttext\n" + "".join(f"{label}\t{text}\n" for text, label in rows),
        "a.csv": as_csv(rows),
        "a.jsonl": "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows),
    }
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    return [folder / name for name in texts]


def test_every_format_gives_the_same(tmp_path: Path) -> None:
    for path in written(ROWS, tmp_path):
        batch = load_texts(path).batch(range(len(ROWS)))
        assert list(zip(batch.samples, batch.targets or (), strict=True)) == ROWS
        assert batch.names[0] == ("a.jsonl:1" if path.suffix == ".jsonl" else f"{path.name}:2")
        assert load_texts(path).watched() == {str(path)}


plain = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n"), min_size=1).filter(lambda text: text.strip())


@settings(deadline=None)
@given(rows=st.lists(st.tuples(plain, st.sampled_from(["a", "b"])), min_size=1, max_size=5))
def test_texts_come_back_as_written(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    for path in written(rows, tmp_path_factory.mktemp("texts")):
        batch = load_texts(path).batch(range(len(rows)))
        assert list(batch.samples) == [text for text, _ in rows], path.suffix
        assert batch.targets == [label for _, label in rows]


def test_plain_lines_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes("\ufeffone\r\n\r\n two \r\n".encode())
    (tmp_path / "a.txt").write_text("three\u2028four")
    (tmp_path / "c.bin").write_text("x")
    (tmp_path / ".hidden").write_text("x")
    found = load_texts(tmp_path / "b.txt").batch(range(2))
    assert found.samples == ["one", " two "]
    assert found.names == ["b.txt:1", "b.txt:3"]
    assert found.targets is None
    folder = load_texts(tmp_path)
    assert folder.batch(range(3)).samples == ["three\u2028four", "one", " two "]
    assert [one.path.name for one in folder.rejected] == ["c.bin"]


def test_labels_may_be_left_out_or_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tsource\nx\ty\n")
    assert load_texts(tmp_path / "a.tsv").batch([0]).targets is None
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "", "label": "4"}')
    assert load_texts(tmp_path / "a.jsonl").batch([0, 1]).targets == [3, "4"]


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    first = load_texts(tmp_path / "a.txt").fingerprint()
    assert load_texts(tmp_path / "a.txt").fingerprint() == first
    (tmp_path / "a.txt").write_text("two")
    assert load_texts(tmp_path / "a.txt").fingerprint() != first


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "", "is empty"),
        ("a.tsv", "text\tlabel\n", "holds no text"),
        ("a.tsv", "body\tlabel\nx\ty\n", r":1: the columns are 'body', 'label'; name one of them 'text'"),
        ("a.tsv", "text\tlabel\nx\ty\tz\n", ":2: 3 fields, and there are 2 columns"),
        ("a.tsv", "text\tlabel\n\nx\t \n", ":3: the label is empty"),
        ("a.csv", 'text,label\n"x,y\n', r":2: not CSV \("),
        ("a.csv", "text,text\na,b\n", "name one of them 'text'"),
        ("a.jsonl", '{"text": "x"}\n{', ":2: not JSON"),
        ("a.jsonl", '{"text": 1}', ":1: not an object with a 'text'"),
        ("a.jsonl", '{"text": "x", "label": [1]}', r"label \[1\] is neither"),
        ("a.jsonl", '{"text": "x", "label": 1}\n{"text": "y"}', ":2: no label, and other texts have one"),
        ("a.txt", "\n \n", "holds no text"),
        ("a.pdf", "x", "is no text file"),
    ],
)
def test_bad_files(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said) as caught:
        load_texts(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_files_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok\n\xff")
    with pytest.raises(DataError, match="byte 3 is not UTF-8"):
        load_texts(tmp_path / "a.txt")
    with pytest.raises(DataError, match="does not exist"):
        load_texts(tmp_path / "b.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"holds no \.txt file"):
        load_texts(tmp_path / "empty")
