"""Sentence similarity from text to metric: pooling, prefixes, pairs on the command line, sentences alone, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from word_vectors import table, tokenizer, word_vectors

from engine import ConfigError, DataError, InputError, ModelError
from utils.pipeline import answers, valid
from utils.pipeline.flags.options import options
from utils.pipeline.session import load_data
from utils.tasks.common.embedding import pooled, scaled
from utils.tasks.sentence_similarity import SentenceSimilarity, Similarity

PAIRS = (
    "sentence1\tsentence2\tscore\na man plays the guitar\ta man plays an instrument\t4\n"
    "a man plays the guitar\train is wet\t0\ndogs bark\tdogs bark at cats\t3\n\tnothing\t1\n"
)


def _run(script: str, folder: Path, ckpt: Path, *argv: str, **more: Any) -> tuple[int, dict[str, Any]]:
    words = ["--target", "onnx", "--json", str(folder / "r.json"), *argv]
    main = valid.main if script == "valid" else answers.main
    front = (None, SentenceSimilarity) if script == "valid" else (None, SentenceSimilarity, script)
    code = main(*front, argv=words, ckpt=ckpt, **more)
    return code, json.loads((folder / "r.json").read_text())


def _expected(first: str, second: str, way: str = "mean") -> float:
    numbers = tokenizer()["model"]["vocab"]
    vectors = table(len(numbers))
    rows = []
    for text in (first, second):
        found = vectors[[numbers[word] for word in ("[CLS]", *text.split(), "[SEP]")]].astype(np.float64)
        one = {"mean": found.mean(axis=0), "cls": found[0], "last": found[-1]}[way]
        rows.append(one / np.linalg.norm(one))
    return float(rows[0] @ rows[1])


@pytest.mark.parametrize("in_graph", [False, True])
def test_two_sentences_on_the_command_line(in_graph: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ckpt = word_vectors(tmp_path / "m.onnx", pooled=in_graph)
    code, found = _run("single", tmp_path, ckpt, "--text", "a man plays", "someone plays an instrument")
    assert code == 0
    wanted = _expected("a man plays", "someone plays an instrument")
    assert found["answers"][0]["answer"]["score"] == pytest.approx(wanted, abs=1e-5)
    assert f"cosine {wanted:.3f}   a man plays | someone plays an instrument" in capsys.readouterr().out


def test_metric_and_invalid_row(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text(PAIRS)
    ckpt = word_vectors(tmp_path / "m.onnx")
    code, found = _run("valid", tmp_path, ckpt, data_path=tmp_path / "p.tsv", batch_size=2)
    assert code == 1  # one row was lost, and is named
    assert found["metric_name"] == "spearman"
    assert found["samples"] == 3
    assert [one["name"] if isinstance(one, dict) else one[0] for one in found["failures"]] == [
        f"{tmp_path / 'p.tsv'}:5"
    ]
    pearson = _run("valid", tmp_path, ckpt, "--metric", "pearson", data_path=tmp_path / "p.tsv")[1]
    scores = [_expected(*line.split("\t")[:2]) for line in PAIRS.split("\n")[1:4]]
    assert pearson["metric"] == pytest.approx(np.corrcoef(scores, [4, 0, 3])[0, 1], abs=1e-5)


def test_scores_are_independent_of_the_batch_size(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("\n".join(PAIRS.split("\n")[:4]))
    ckpt = word_vectors(tmp_path / "m.onnx")
    several = [_run("multi", tmp_path, ckpt, data_path=tmp_path / "p.tsv", batch_size=n)[1] for n in (1, 2, 3)]
    scores = [[one["answer"]["score"] for one in found["answers"]] for found in several]
    assert scores[0] == scores[1] == scores[2]


def test_nearest_sentence_of_single_sentences(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("dogs bark\nrain is wet\ndogs bark at cats\ndogs bark\n")
    ckpt = word_vectors(tmp_path / "m.onnx")
    _, found = _run("multi", tmp_path, ckpt, data_path=tmp_path / "s.txt")
    nearest = [one["answer"]["nearest"] for one in found["answers"]]
    assert nearest[0] == nearest[3] == "dogs bark at cats"  # not the same sentence again
    assert nearest[2] == "dogs bark"
    with pytest.raises(DataError, match="one sentence per row"):
        _run("valid", tmp_path, ckpt, data_path=tmp_path / "s.txt")


def test_flags_override_metadata(tmp_path: Path) -> None:
    ckpt = word_vectors(tmp_path / "m.onnx", pooling="last", prefix="query ")
    texts = ("--text", "a man plays", "rain is wet")
    score = _run("single", tmp_path, ckpt, *texts)[1]["answers"][0]["answer"]["score"]
    assert score == pytest.approx(1.0, abs=1e-6)  # the last token is [SEP] of both
    score = _run("single", tmp_path, ckpt, *texts, "--pooling", "mean", "--prefix", "")[1]["answers"][0]["answer"][
        "score"
    ]
    assert score == pytest.approx(_expected("a man plays", "rain is wet"), abs=1e-5)
    score = _run("single", tmp_path, ckpt, *texts, "--pooling", "mean")[1]["answers"][0]["answer"]["score"]
    assert score == pytest.approx(_expected("query a man plays", "query rain is wet"), abs=1e-5)


def test_errors_are_one_line(tmp_path: Path) -> None:
    graph = word_vectors(tmp_path / "g.onnx", pooled=True)
    text = ("--text", "a man", "rain")
    with pytest.raises(InputError, match=r"--pooling .*leave it out"):
        _run("single", tmp_path, graph, *text, "--pooling", "cls")
    with pytest.raises(ConfigError, match="--compare dot with --normalize false"):
        _run("single", tmp_path, graph, *text, "--compare", "cosine", "--normalize", "false")
    with pytest.raises(ConfigError, match=r"--columns a b c d"):
        _run("single", tmp_path, graph, "--columns", "a", "b", "c", "d")
    with pytest.raises(ModelError, match="pooling 'max' must be one of mean, cls, last"):
        _run("single", tmp_path, word_vectors(tmp_path / "w.onnx", pooling="max"), *text)


def test_reference_scores(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("\n".join(PAIRS.split("\n")[:4]))
    task = SentenceSimilarity(
        options(None, SentenceSimilarity, "valid", [], ckpt=tmp_path / "m.onnx", data_path=tmp_path / "p.tsv")
    )
    data = load_data(task)
    (tmp_path / "s.txt").write_text("0.5\n0.25\n1\n")
    assert task.reference_answers(tmp_path / "s.txt", data) == [0.5, 0.25, 1.0]
    (tmp_path / "s.json").write_text("[0.5, null]")
    with pytest.raises(DataError, match="2 scores for 3 samples"):
        task.reference_answers(tmp_path / "s.json", data)
    assert task.agreement(Similarity(0.75), 0.5) == 0.75


def test_pooling_leaves_padding_out() -> None:
    states = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    states[0, 2:] = np.nan  # whatever stands there
    assert pooled(states, [2, 4], "mean").tolist() == [[1.5, 2.5, 3.5], [16.5, 17.5, 18.5]]
    assert pooled(states, [2, 4], "last").tolist() == [[3, 4, 5], [21, 22, 23]]
    assert pooled(states, [2, 4], "cls").tolist() == [[0, 1, 2], [12, 13, 14]]
    assert np.isnan(scaled(np.zeros((1, 3), np.float32))).all()
    np.testing.assert_allclose(scaled(np.array([[3e30, 4e30]], np.float32)), [[0.6, 0.8]], rtol=1e-6)
