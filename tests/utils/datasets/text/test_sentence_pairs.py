"""Pairs of sentences with ratings: tables, STS-B's two layouts, SICK; single sentences."""

from pathlib import Path

import pytest

from engine import ConfigError, DataError
from utils.datasets.text.sentence_pairs import SENTENCES, SentencePair, load_sentences, pairs_of

GLUE = (
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    '0\tmain\tf\t2012\t1\tnone\tnone\tA man "plays.\tA man played.\t4.500\n'
    "1\tmain\tf\t2012\t2\tnone\tnone\tOne.\tTwo.\tmany\n"
)
STS = (
    "main-news\tMSRpar\t2012test\t24\t2.5\tA, b\tC; d\n"
    "main-news\tMSRpar\t2012test\t25\t0\tX\tY\tsource\tmore\nshort\tline\n"
)
SICK = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n1\tA cat\tA dog\tNEUTRAL\t3.2\n"


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_glues_table(tmp_path: Path) -> None:
    found = load_sentences(_file(tmp_path, "dev.tsv", GLUE))
    assert found.samples == [SentencePair('A man "plays.', "A man played.")]
    assert found.targets == [4.5]
    assert found.names == ["dev.tsv:2"]
    (one,) = found.rejected
    assert (one.path.name, one.reason) == ("dev.tsv:3", "score 'many' is not a number")


def test_the_benchmarks_file_without_column_names(tmp_path: Path) -> None:
    found = load_sentences(_file(tmp_path, "sts-dev.csv", STS))
    assert found.samples == [SentencePair("A, b", "C; d"), SentencePair("X", "Y")]
    assert found.targets == [2.5, 0.0]
    assert "2 fields" in found.rejected[0].reason


def test_sick_and_a_folder_with_it(tmp_path: Path) -> None:
    _file(tmp_path, "SICK.txt", SICK)
    found = load_sentences(tmp_path)
    assert found.samples == [SentencePair("A cat", "A dog")]
    assert found.targets == [3.2]


def test_given_columns_and_unknown_ones(tmp_path: Path) -> None:
    file = _file(tmp_path, "own.csv", 'left,right,how\n"a, b",c,1\n,d,2\n')
    found = load_sentences(file, ["left", "right", "how"])
    assert found.samples == [SentencePair("a, b", "c")]
    assert "left is empty" in found.rejected[0].reason
    with pytest.raises(DataError, match=r"no column 'hwo'.*did you mean 'how'"):
        load_sentences(file, ["left", "right", "hwo"])
    with pytest.raises(DataError, match="--columns TEXT1 TEXT2 SCORE"):
        load_sentences(file)


def test_pairs_without_a_rating(tmp_path: Path) -> None:
    found = load_sentences(_file(tmp_path, "p.jsonl", '{"text1": "a", "text2": "b"}\n{"text1": "a"}\nnot json\n'))
    assert found.samples == [SentencePair("a", "b")]
    assert found.targets is None
    assert len(found.rejected) == 2


def test_single_sentences(tmp_path: Path) -> None:
    found = load_sentences(_file(tmp_path, "s.txt", "One.\n\n Two. \n"))
    assert found.samples == [SentencePair("One.", None), SentencePair("Two.", None)]
    assert found.notes[SENTENCES] == ["One.", "Two."]
    assert found.names == ["s.txt:1", "s.txt:3"]
    assert pairs_of(["a", "b"]).samples == [SentencePair("a", "b")]
    assert pairs_of(["a", "b", "c"]).notes[SENTENCES] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match="pass two"):
        pairs_of(["a"])
    with pytest.raises(ConfigError, match="empty"):
        pairs_of(["a", " "])


def test_files_without_usable_sentences(tmp_path: Path) -> None:
    for name, text in (("empty.txt", "\n"), ("head.tsv", "sentence1\tsentence2\tscore\n \tb\t1\n")):
        with pytest.raises(DataError, match="has no sentence"):
            load_sentences(_file(tmp_path, name, text))
    with pytest.raises(DataError, match="does not exist"):
        load_sentences(tmp_path / "missing.tsv")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="has no"):
        load_sentences(tmp_path / "none")
