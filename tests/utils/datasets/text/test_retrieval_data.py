"""Queries, corpora and judgments: BEIR's folder, TREC qrels, MS MARCO's tables; invalid lines."""

from pathlib import Path

import pytest

from engine import ConfigError, DataError
from utils.datasets.base import ListDataset
from utils.datasets.text.retrieval import CANDIDATES, CORPUS, UNJUDGED, Query, files_of, load_retrieval


def _beir(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(
        '{"_id": "d1", "title": "Tea", "text": "is hot"}\n{"_id": "d2", "title": "", "text": "ice"}\n'
        '{"_id": "d1", "text": "again"}\n{"_id": "d3", "text": " "}\n{"_id": 4, "text": "four"}\n[1]\n'
    )
    (folder / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "warm drink"}\n{"_id": "q2", "text": "cold"}\n{"_id": "q3", "text": "other split"}\n'
        '{"_id": "q4", "text": "nothing is right"}\n'
    )
    (folder / "qrels/test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td9\t1\nq2\td2\t1\nq2\td2\t0\nq4\td2\t0\nq9\td1\t1\n"
        "bad line here now ok\n"
    )
    return folder


def _load(paths: dict[str, Path], judged: bool = True, **more: object) -> ListDataset:
    return load_retrieval(files_of(paths, "test"), judged=judged, **more)  # type: ignore[arg-type]


def test_beirs_folder(tmp_path: Path) -> None:
    found = _load({"data": _beir(tmp_path)})
    assert found.samples == [Query("q1", "warm drink"), Query("q2", "cold")]
    assert found.targets == [{"d1": 2}, {"d2": 1}]
    assert found.notes[CORPUS] == (["d1", "d2", "4"], ["Tea is hot", "ice", "four"])
    assert found.notes[UNJUDGED] == 1
    reasons = {one.path.name: one.reason for one in found.rejected}
    assert "occurs again" in reasons["corpus.jsonl:3"]
    assert "empty" in reasons["corpus.jsonl:4"]
    assert "not an object" in reasons["corpus.jsonl:6"]
    assert "passage 'd9'" in reasons["test.tsv:3"]
    assert "again" in reasons["test.tsv:5"]
    assert "query 'q9'" in reasons["test.tsv:7"]
    assert "query passage grade" in reasons["test.tsv:8"]
    assert "no relevant passage" in reasons["q4"]
    assert len(reasons) == 8


def test_ms_marco_with_trec_qrels_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "collection.tsv").write_text("0\tfirst passage\n1\tsecond one\nbroken\n")
    (tmp_path / "queries.tsv").write_text("7\twhat is second\n")
    (tmp_path / "qrels.tsv").write_text("7 0 1 1\n7\t0\t0\t-1\n")
    (tmp_path / "run.txt").write_text("7 Q0 0 1 0.5 r\n7 Q0 1 2 0.9 r\n7 Q0 5 3 0.1 r\n\n7 Q0\n")
    found = _load({"data": tmp_path, "candidates": tmp_path / "run.txt"})
    assert found.targets == [{"1": 1, "0": -1}]
    assert found.notes[CANDIDATES] == {"7": [1, 0]}
    assert [one.path.name for one in found.rejected] == ["collection.tsv:3", "run.txt:3", "run.txt:5"]


def test_files_by_name_and_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("one\n\nthree\n")
    (tmp_path / "q.tsv").write_text("qid\tquery\na\tsome\n")
    found = _load({"corpus": tmp_path / "c.txt", "queries": tmp_path / "q.tsv"}, judged=False)
    assert found.targets is None
    assert found.notes[CORPUS].ids == ["1", "3"]
    assert found.samples == [Query("a", "some")]
    typed = _load({"data": tmp_path / "c.txt"}, judged=False, typed=["my question"])
    assert typed.samples == [Query("text", "my question")]


def test_invalid_data(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("one\n")
    (tmp_path / "q.txt").write_text("who\n")
    (tmp_path / "r.tsv").write_text("1 2 1\n")
    (tmp_path / "bare.jsonl").write_text('{"name": 1}\n')
    with pytest.raises(DataError, match="queries=FILE"):
        _load({"data": tmp_path / "c.txt"})
    with pytest.raises(ConfigError, match="has no corpus"):
        _load({"queries": tmp_path / "q.txt"})
    with pytest.raises(ConfigError, match="passages="):
        _load({"passages": tmp_path / "q.txt"})
    files = {"corpus": tmp_path / "c.txt", "queries": tmp_path / "q.txt", "qrels": tmp_path / "r.tsv"}
    with pytest.raises(DataError, match=r"line 1: .*'2'"):
        _load(files)
    with pytest.raises(DataError, match=r"missing\.tsv does not exist"):
        _load({**files, "qrels": tmp_path / "missing.tsv"})
    with pytest.raises(DataError, match="expected _id and text"):
        _load({**files, "corpus": tmp_path / "bare.jsonl"})
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has none of"):
        _load({"data": tmp_path / "empty"})
