"""Files of tagged words: CoNLL with two and four columns, documents, JSON lines, plain text, and invalid sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import DataError
from utils.datasets.text.tagged import Sentence, load_tagged, sentence_of, split_text

FOUR = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

Rome NNP B-NP B-LOC
"""


def file(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / name


def test_four_columns_and_documents(tmp_path: Path) -> None:
    found = load_tagged(file(tmp_path, "a.txt", FOUR))
    assert [one.words for one in found.samples] == [("EU", "rejects"), ("Peter", "Blackburn"), ("Rome",)]
    assert found.targets == [("B-ORG", "O"), ("B-PER", "I-PER"), ("B-LOC",)]
    assert found.units == ["a.txt:document 1", "a.txt:document 1", "a.txt:document 2"]
    assert found.names == ["a.txt:3", "a.txt:6", "a.txt:11"]
    assert found.notes["tags"] == ["B-LOC", "B-ORG", "B-PER", "I-PER", "O"]
    assert load_tagged(tmp_path / "a.txt", column=2).targets == [("NNP", "VBZ"), ("NNP", "NNP"), ("NNP",)]
    assert load_tagged(tmp_path / "a.txt", tags=False).targets is None


@pytest.mark.parametrize(
    ("name", "between", "end"), [("a.conll", " ", "\n"), ("a.tsv", "\t", "\r\n"), ("a", "\t", "\n")]
)
def test_two_columns(name: str, between: str, end: str, tmp_path: Path) -> None:
    text = end.join([f"Ada{between}B-PER", f"Hill{between}I-PER", "", "", "# a comment", f"now{between}O"])
    found = load_tagged(file(tmp_path, name, text))
    assert [one.words for one in found.samples] == [("Ada", "Hill"), ("now",)]
    assert found.targets == [("B-PER", "I-PER"), ("O",)]
    assert found.units is None
    assert not found.rejected


def test_one_character_per_line(tmp_path: Path) -> None:
    """The layout of MSRA's corpus and others: a Chinese character and its tag."""
    found = load_tagged(file(tmp_path, "dev.txt", "北 B-LOC\n京 I-LOC\n\n我 O\n"))
    assert found.samples[0] == Sentence("北 京", ("北", "京"), (0, 2))
    assert found.targets == [("B-LOC", "I-LOC"), ("O",)]


def test_plain_text_has_no_tags(tmp_path: Path) -> None:
    found = load_tagged(file(tmp_path, "a.txt", "Ada Hill, now.\n\nTwo words\n"))
    assert found.samples[0] == Sentence("Ada Hill, now.", ("Ada", "Hill", ",", "now", "."), (0, 4, 8, 10, 13))
    assert found.targets is None
    assert found.names == ["a.txt:1", "a.txt:3"]


def test_words_of_texts() -> None:
    assert split_text("I'm in 北京").words == ("I", "'", "m", "in", "北", "京")
    assert sentence_of(["a", "bc"]) == Sentence("a bc", ("a", "bc"), (0, 2))


def test_json_lines_of_tokens(tmp_path: Path) -> None:
    rows = [
        {"tokens": ["Ada", "."], "ner_tags": ["B-PER", "O"]},
        {"tokens": ["Rome"], "ner_tags": [3], "document": "d"},
    ]
    found = load_tagged(file(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert found.targets == [("B-PER", "O"), (3,)]
    assert found.units == ["a.jsonl:1", "d"]
    assert found.notes["tags"] == ["B-PER", "O"]


def test_json_lines_of_spans(tmp_path: Path) -> None:
    rows = [
        {"text": "Ada Hill, Rome.", "entities": [[0, 8, "PER"], {"start": 10, "end": 14, "label": "LOC"}]},
        {"text": "Nothing.", "entities": []},
    ]
    found = load_tagged(file(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert found.targets == [("B-PER", "I-PER", "O", "B-LOC", "O"), ("O", "O")]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"tokens": ["a"], "tags": ["O", "O"]}, "2 tags for 1 words"),
        ({"tokens": ["a"], "tags": "O"}, "one tag per word"),
        ({"tokens": [], "tags": []}, "a list of words"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "a list of words"),
        ({"tokens": ["a"], "tags": [True]}, "one tag per word"),
    ],
)
def test_invalid_rows_of_tokens(row: object, why: str, tmp_path: Path) -> None:
    text = json.dumps({"tokens": ["b"], "tags": ["O"]}) + "\n" + json.dumps(row) + "\n"
    found = load_tagged(file(tmp_path, "a.jsonl", text))
    assert len(found) == 1
    assert [one.path.name for one in found.rejected] == ["a.jsonl:2"]
    assert why in found.rejected[0].reason


@pytest.mark.parametrize(
    ("entities", "why"),
    [
        ([[0, 2, "PER"]], "begin and end with words"),
        ([[0, 3, "PER"], [0, 8, "PER"]], "overlaps"),
        ([[0, 99, "PER"]], "within the text"),
        ([[0, 3]], "begin, end, type"),
        ("PER", "a list"),
    ],
)
def test_invalid_spans(entities: object, why: str, tmp_path: Path) -> None:
    rows = [{"text": "Good.", "entities": []}, {"text": "Ada Hill.", "entities": entities}]
    found = load_tagged(file(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert len(found) == 1
    assert why in found.rejected[0].reason


def test_a_sentence_with_a_short_line_is_left_out(tmp_path: Path) -> None:
    found = load_tagged(file(tmp_path, "a.conll", "a O\n\nb O\nc\nd O\n\ne O\n"))
    assert [one.words for one in found.samples] == [("a",), ("e",)]
    assert [one.path.name for one in found.rejected] == ["a.conll:4"]
    assert "1 column" in found.rejected[0].reason


def test_invalid_bytes_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_bytes(b"a O\n\nb\xff O\n")
    found = load_tagged(tmp_path / "a.conll")
    assert [one.path.name for one in found.rejected] == ["a.conll:3"]
    assert load_tagged(tmp_path / "a.conll", encoding="latin-1").samples[1].words == ("bÿ",)


def test_a_folder_of_files(tmp_path: Path) -> None:
    file(tmp_path, "a.conll", "a O\n")
    file(tmp_path, "b.conll", "b B-X\n")
    file(tmp_path, "c.png", "")
    found = load_tagged(tmp_path)
    assert found.names == ["a.conll:1", "b.conll:1"]
    assert [one.path.name for one in found.rejected] == ["c.png"]


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "b.jsonl"])
def test_a_file_without_sentences_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=name):
        load_tagged(file(tmp_path, name, "\n\n"))


def test_keys_of_json_are_listed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'word'"):
        load_tagged(file(tmp_path, "a.jsonl", '{"word": "a"}\n'))


def test_missing_paths_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_tagged(tmp_path / "none.conll")
