"""Retrieval and reranking from files to metric: a reranker behind, kept vectors, runs written, NaN, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import bound
from word_vectors import pair_model, word_vectors

from engine import ConfigError, DataError
from utils.pipeline import answers, valid
from utils.pipeline.flags.options import options
from utils.pipeline.session import load_data
from utils.tasks.common.ranked import Found
from utils.tasks.model import Model
from utils.tasks.reranking import Reranking
from utils.tasks.retrieval import Retrieval

PASSAGES = {"p1": "a man plays the guitar", "p2": "rain is wet", "p3": "dogs bark at cats", "p4": "guitar guitar music"}
QUERIES = {"q1": "someone plays the guitar", "q2": "dogs bark", "q3": "asked in another split"}
QRELS = "query-id\tcorpus-id\tscore\nq1\tp1\t2\nq1\tp4\t1\nq2\tp3\t1\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", PASSAGES), ("queries", QUERIES)):
        rows = [json.dumps({"_id": key, "text": text}) for key, text in texts.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows))
    (folder / "qrels" / "test.tsv").write_text(QRELS)
    return folder


def _run(script: str, folder: Path, ckpt: Any, *argv: str, task: Any = Retrieval, **more: Any) -> dict[str, Any]:
    words = ["--target", "onnx", "--json", str(folder / "r.json"), *argv]
    front = (None, task) if script == "valid" else (None, task, script)
    code = (valid.main if script == "valid" else answers.main)(*front, argv=words, ckpt=ckpt, **more)
    found: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return {**found, "code": code}


def test_a_folder_is_evaluated(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx")}
    found = _run("valid", tmp_path, ckpt, "--save_predictions", str(tmp_path / "run.txt"), data_path=data, batch_size=2)
    assert (found["code"], found["samples"], found["metric_name"]) == (0, 2, "ndcg10")
    # p1 is first and p4 third: (2 + 1/2) of (2 + 1/log2(3)); p3 is first
    assert found["metric"] == pytest.approx((2.5 / (2 + 1 / np.log2(3)) + 1) / 2)
    assert found["secondary"]["recall1"] == pytest.approx(0.75)
    assert "1 queries have no judgment in this split" in capsys.readouterr().err
    task = Retrieval(options(None, Retrieval, "valid", [], ckpt=ckpt, data_path=data)).bind(Model(Path("m.onnx")))
    ranked = task.reference_answers(tmp_path / "run.txt", load_data(task))
    assert ranked[0] is not None
    assert (ranked[0][0], ranked[0][2]) == ("p1", "p4")
    found = _run("valid", tmp_path, ckpt, "--metric", "map", data_path=data, batch_size=1)
    assert found["metric"] == pytest.approx(((1 + 2 / 3) / 2 + 1) / 2)


def test_a_question_on_the_command_line(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx")}
    found = _run("single", tmp_path, ckpt, "--text", "rain", "--topk", "2", data_path=data)
    passages = found["answers"][0]["answer"]["passages"]
    assert [one["rank"] for one in passages] == [1, 2]
    assert passages[0]["id"] == "p2"
    assert "1. 0." in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--text: "):
        _run("single", tmp_path, ckpt, "--text", " ", data_path=data)


def test_the_reranker_decides_the_order(data: Path, tmp_path: Path) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx"), "reranker": pair_model(tmp_path / "r.onnx")}
    found = _run(
        "single", tmp_path, ckpt, "--text", "a man plays the guitar", "--topk", "4", "--rerank", "2", data_path=data
    )
    passages = found["answers"][0]["answer"]["passages"]
    assert [one["id"] for one in passages[:2]] == ["p4", "p1"]  # twice the word, before the nearest vector
    assert [one["score"] for one in passages] == [3.0, 2.0, 1.0, 0.0]


def test_reranking_orders_candidates_without_retrieval(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ckpt = pair_model(tmp_path / "r.onnx")
    (tmp_path / "run.txt").write_text("q1 Q0 p1 1 9 x\nq1 Q0 p4 2 8 x\nq2 Q0 p3 1 9 x\nq2 Q0 p7 2 9 x\n")
    paths = {"data": data, "candidates": tmp_path / "run.txt"}
    found = _run("valid", tmp_path, ckpt, task=Reranking, data_path=paths)
    assert (found["code"], found["samples"]) == (1, 2)  # p7 is not in the corpus: named
    assert found["secondary"]["mrr10"] == 1.0
    assert found["metric"] < 1.0  # p4 before p1
    found = _run("valid", tmp_path, ckpt, "--depth", "2", "--cut", "2", task=Reranking, data_path=data)
    assert found["metric"] < 1.0
    assert "the first 2 of 4 passages" in capsys.readouterr().err


def test_vectors_are_stored_with_the_journal(data: Path, tmp_path: Path) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx")}
    words = ("--resume", str(tmp_path / "kept"))
    first = _run("valid", tmp_path, ckpt, *words, data_path=data)
    (file,) = (tmp_path / "kept" / "corpus").glob("*.npy")
    assert np.load(file).shape == (4, 24)
    time = file.stat().st_mtime_ns
    assert _run("valid", tmp_path, ckpt, *words, data_path=data)["metric"] == first["metric"]
    assert file.stat().st_mtime_ns == time
    file.write_bytes(b"damaged")
    assert _run("valid", tmp_path, ckpt, *words, data_path=data)["metric"] == first["metric"]


def test_nan_in_the_corpus_invalidates_every_ranking(data: Path, tmp_path: Path) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx")}
    (data / "corpus.jsonl").write_text((data / "corpus.jsonl").read_text() + '\n{"_id": "p5", "text": "music"}')
    import onnx
    from onnx import numpy_helper

    model = onnx.load(ckpt["embedder"])
    (table,) = [one for one in model.graph.initializer if one.name == "table"]
    values = numpy_helper.to_array(table).copy()
    numbers = json.loads({one.key: one.value for one in model.metadata_props}["tokenizer"])["model"]["vocab"]
    values[numbers["music"]] = np.nan
    table.CopyFrom(numpy_helper.from_array(values, "table"))
    onnx.save(model, ckpt["embedder"])
    found = _run("valid", tmp_path, ckpt, data_path=data)
    assert (found["code"], len(found["nan_outputs"])) == (1, 2)


def test_invalid_flags_give_one_line(data: Path, tmp_path: Path) -> None:
    ckpt = {"embedder": word_vectors(tmp_path / "m.onnx")}
    with pytest.raises(ConfigError, match=r"--depth 5 .*--cut"):
        _run("valid", tmp_path, ckpt, "--depth", "5", data_path=data)
    with pytest.raises(DataError, match="has no judgments"):
        _run("valid", tmp_path, ckpt, "--split", "dev", data_path=data)
    with pytest.raises(ConfigError, match="--rerank 0"):
        _run("valid", tmp_path, ckpt, "--rerank", "0", data_path=data)


def test_agreement_of_rankings() -> None:
    agreement = bound(Retrieval, None).agreement
    found = Found(["a", "b", "c"], np.array([3, 2, 1], np.float32), [])
    assert agreement(found, ["a", "b", "c"]) == 1.0
    assert agreement(found, ["x", "y", "z"]) == 0.0
    assert agreement(found, ["b", "a", "c"]) == pytest.approx(2 / 3)


def test_truncated_passages_are_reported_for_stored_vectors(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ckpt, kept = {"embedder": word_vectors(tmp_path / "m.onnx")}, tmp_path / "kept"
    said = []
    for _ in range(2):
        _run("valid", tmp_path, ckpt, "--resume", str(kept), "--max_length", "4", data_path=data, batch_size=1)
        said.append([line for line in capsys.readouterr().err.splitlines() if "passages" in line and "cut" in line])
        for journal in kept.iterdir():  # the vectors stay
            if journal.name != "corpus":
                journal.unlink()
    assert said[0] == said[1]
    assert len(said[0]) == 1
