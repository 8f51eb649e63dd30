"""Texts and labels: equal data sets from all formats, and invalid lines."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.datasets.text.texts import Columns, load_texts

ROWS = [("Good, really", "positive"), ('He message "no"', "negative"), ("短い文", "positive")]


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


def test_all_formats_give_the_same_data(tmp_path: Path) -> None:
    for path in written(ROWS, tmp_path):
        batch = load_texts(path).batch(range(len(ROWS)))
        assert list(zip(batch.samples, batch.targets or (), strict=True)) == ROWS
        assert batch.names[0] == ("a.jsonl:1" if path.suffix == ".jsonl" else f"{path.name}:2")
        assert load_texts(path).source_files() == {str(path)}


plain = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n"), min_size=1).filter(lambda text: text.strip())


@settings(deadline=None)
@given(rows=st.lists(st.tuples(plain, st.sampled_from(["a", "b"])), min_size=1, max_size=5))
def test_texts_are_read_unchanged(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
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


def test_missing_and_numeric_labels(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tsource\nx\ty\n")
    assert load_texts(tmp_path / "a.tsv").batch([0]).targets is None
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "y", "label": "4"}')
    assert load_texts(tmp_path / "a.jsonl").batch([0, 1]).targets == [3, "4"]


def test_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    first = load_texts(tmp_path / "a.txt").fingerprint()
    assert load_texts(tmp_path / "a.txt").fingerprint() == first
    (tmp_path / "a.txt").write_text("two")
    assert load_texts(tmp_path / "a.txt").fingerprint() != first


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "", "is empty"),
        ("a.tsv", "text\tlabel\n", "has no text"),
        ("a.tsv", "body\tlabel\nx\ty\n", r"the columns are 'body', 'label', .*--text_column NAME"),
        ("a.tsv", "text\tlabel\nx\ty\tz\n", ":2: 3 fields, expected 2"),
        ("a.csv", 'text,label\n"x,y\n', r":2: not CSV \("),
        ("a.csv", "text,text\na,b\n", "column 'text' occurs twice"),
        ("a.jsonl", '{"text": 1}', ":1: its 'text' is not a text"),
        ("a.jsonl", '{"text": "x", "label": [1]}', r"label \[1\] must be"),
        ("a.jsonl", "", "is empty"),
        ("a.json", '{"text": "x"}', "not a list"),
        ("a.json", '[{"text": "x"}', "not JSON"),
        ("a.txt", "\n \n", "has no text"),
        ("a.pdf", "x", "is not a text file"),
    ],
)
def test_invalid_files(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load_texts(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", b"text\tlabel\nx\ta\n\nx\t \ny\tb\n", {4: "no label"}),
        ("a.tsv", b"text\tlabel\nx\ta\tz\ny\tb\n \tb\nx", {2: "3 fields", 4: "'text' is empty", 5: "1 fields"}),
        ("a.tsv", b"text\tgold_label\nx\ta\ny\t-\n", {3: "the annotators disagreed"}),
        ("a.tsv", b"text\tlabel\nx\ta\n\xff\tb\n", {3: "not UTF-8 text"}),
        ("a.csv", b'text,label\n"x"y,a\nx,b\n"y,\nb', {2: "not CSV", 4: "up to line 5"}),
        ("a.jsonl", b'{"text": "x"}\n{\n[1]\n{"other": 1}\n{"text": "\\ud800"}\n{"text": ""}\n',
         {2: "not JSON", 3: "not an object", 4: "'text' is missing", 5: "half a character", 6: "'text' is empty"}),
        ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": "y"}', {2: "no label"}),
        ("a.txt", b"ok\n\xff\nfine", {2: "not UTF-8 text"}),
    ],
)  # fmt: skip
def test_invalid_lines_are_rejected(name: str, text: bytes, message: dict[int, str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    found = load_texts(tmp_path / name)
    assert len(found) >= 1
    assert [str(one.path) for one in found.rejected] == [f"{tmp_path / name}:{number}" for number in message]
    for one, why in zip(found.rejected, message.values(), strict=True):
        assert why in one.reason


def test_missing_texts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\n\xfe")
    with pytest.raises(DataError, match=r"a.txt:1: not UTF-8.*; 2 lines"):
        load_texts(tmp_path / "a.txt")
    with pytest.raises(DataError, match="does not exist"):
        load_texts(tmp_path / "b.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no \.txt file"):
        load_texts(tmp_path / "empty")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_sets_the_encoding(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("text\tlabel\r\nÄpfel\ta\r\n短い\tb\r\n".encode(encoding))
    batch = load_texts(tmp_path / "a.tsv", Columns(encoding="latin-1")).batch([0, 1])
    assert (batch.samples, batch.targets) == (["Äpfel", "短い"], ["a", "b"])


def test_other_encodings_need_a_flag(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("text\nÄpfel\n".encode("latin-1"))
    with pytest.raises(DataError, match="--encoding"):
        load_texts(tmp_path / "a.tsv")
    assert load_texts(tmp_path / "a.tsv", Columns(encoding="latin-1")).batch([0]).samples == ["Äpfel"]
    with pytest.raises(ConfigError, match="--encoding 'klingon'"):
        load_texts(tmp_path / "a.tsv", Columns(encoding="klingon"))
    (tmp_path / "a.tsv").write_bytes("text\nx".encode("utf-16")[:-1])
    with pytest.raises(DataError, match="not UTF-16 text"):
        load_texts(tmp_path / "a.tsv")


def test_columns_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,Body,other,kind\n1,one,two,x\n")
    found = load_texts(tmp_path / "a.csv", Columns("Body", label="kind"))
    assert (found.samples, found.targets) == (["one"], ["x"])
    assert load_texts(tmp_path / "a.csv", Columns("Body", "other")).samples == [("one", "two")]
    with pytest.raises(DataError, match=r"'body' .--text_column.; .*'id', .*'Body'"):
        load_texts(tmp_path / "a.csv", Columns("body"))
    with pytest.raises(DataError, match=r"no column 'x' .--label_column"):
        load_texts(tmp_path / "a.csv", Columns("Body", label="x"))
    (tmp_path / "b.csv").write_text("1,one\n2,two\n")
    found = load_texts(tmp_path / "b.csv", Columns(names=("label", "text")))
    assert (found.samples, found.targets, found.names) == (["one", "two"], ["1", "2"], ["b.csv:1", "b.csv:2"])
    (tmp_path / "c.tsv").write_text('text\tlabel\n"a ""b""\tc"\tx\n')
    assert load_texts(tmp_path / "c.tsv", Columns(quoted=True)).samples == ['a "b"\tc']


GLUE = {
    "SST-2": ("dev.tsv", "sentence\tlabel\nit 's fun \t1\n", "it 's fun ", "1"),
    "CoLA": ("dev.tsv", "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tMe am.\n", "The sailors rode.", "1"),
    "CoLA-test": ("test.tsv", "index\tsentence\n0\tBill whistled.\n", "Bill whistled.", None),
    "MRPC": (
        "dev.tsv",
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t13\t14\t" He message .\t" He " message it .\r\n',
        ('" He message .', '" He " message it .'),
        "1",
    ),
    "QQP": (
        "dev.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tWhy?\tHow?\t0\n",
        ("Why?", "How?"),
        "0",
    ),
    "MNLI": (
        "dev_matched.tsv",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tgold_label\n"
        "0\t1\t1n\tslate\t( a )\t( b )\t(R a)\t(R b)\tOne.\tTwo.\tneutral\tneutral\tneutral\n",
        ("One.", "Two."),
        "neutral",
    ),
    "QNLI": ("dev.tsv", "index\tquestion\tsentence\tlabel\n0\tQ?\tS.\tentailment\n", ("Q?", "S."), "entailment"),
    "RTE": ("dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n", ("A.", "B."), "entailment"),
    "WNLI": ("dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n", ("A.", "B."), "1"),
}


@pytest.mark.parametrize("name", GLUE)
def test_the_folders_of_glue(name: str, tmp_path: Path) -> None:
    """Columns as in GLUE's own files (gluebenchmark.com/tasks)."""
    file, text, sample, label = GLUE[name]
    (tmp_path / file).write_bytes(text.encode())
    (tmp_path / "train.tsv").write_text("nothing\n")
    found = load_texts(tmp_path)
    assert found.samples[0] == sample
    assert found.targets == (None if label is None else [label, "0"][: len(found)])
    assert found.names[0].startswith(f"{file}:")
    assert not found.rejected


def test_a_folder_with_tables(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text\nx\n")
    assert load_texts(tmp_path).samples == ["x"]
    (tmp_path / "two.csv").write_text("text\ny\n")
    with pytest.raises(DataError, match=r"2 tables \(one.csv, two.csv\)"):
        load_texts(tmp_path)
    (tmp_path / "dev_mismatched.tsv").write_text("text\nno\n")
    (tmp_path / "dev_matched.tsv").write_text("text\nz\n")
    assert load_texts(tmp_path).samples == ["z"]
