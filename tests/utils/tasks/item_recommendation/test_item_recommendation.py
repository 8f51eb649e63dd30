"""Recommendation of items from ratings to metric: scores and vectors, seen items, samples, splits, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from item_models import follows, towers

from engine import ConfigError, DataError, ModelError
from utils.pipeline import answers, valid
from utils.tasks.item_recommendation.task import ItemRecommendation

ITEMS = [f"i{n}" for n in range(12)]
HEAD = "user_id:token\titem_id:token\trating:float\ttimestamp:float"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ratings of 6 users who go from item to item in order, each from another one on."""
    rows = [f"u{user}\ti{user + step}\t4\t{step}" for user in range(6) for step in range(5)]
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "r.inter").write_text("\n".join([HEAD, *rows, "once\ti11\t5\t1", "once\ti10\t5\t0"]))
    return folder


def _next(right: float = 5.0) -> np.ndarray:
    """Return scores that say item n + 1 follows item n, with a little for each item by its number."""
    table = np.tile(np.arange(12) / 100, (13, 1))
    for item in range(11):
        table[item + 1, item + 1] = right
    return table


def _run(script: str, folder: Path, ckpt: Any, *argv: str, **more: Any) -> dict[str, Any]:
    words = ["--target", "onnx", "--json", str(folder / "r.json"), *argv]
    front = (None, ItemRecommendation) if script == "valid" else (None, ItemRecommendation, script)
    main = valid.main if script == "valid" else answers.main
    code = main(*front, argv=words, ckpt=ckpt, **more)  # type: ignore[operator]
    found: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return {**found, "code": code}


def test_model_ranks_next_items_above_popular_ones(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, _next())}
    found = _run("valid", tmp_path, ckpt, data_path=data, batch_size=4)
    assert (found["code"], found["samples"], found["metric_name"]) == (0, 7, "ndcg10")
    assert found["metric"] > found["secondary"]["popular_ndcg10"] + 0.3
    assert found["secondary"]["recall1"] == pytest.approx(1.0)
    again = _run("valid", tmp_path, ckpt, "--metric", "mrr", "--part", "valid", data_path=data, batch_size=1)
    assert again["metric"] == 1.0  # "once" has nothing between its two ratings and is not asked
    assert again["samples"] == 6


def test_history_items_are_excluded_by_default(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, np.tile(np.arange(12.0), (13, 1)))}
    words = ("--users", "once", "--topk", "2")
    (left,) = _run("single", tmp_path, ckpt, *words, data_path=data)["answers"]
    assert [one["id"] for one in left["answer"]["items"]] == ["i9", "i8"]
    (kept,) = _run("single", tmp_path, ckpt, *words, "--keep_seen", data_path=data)["answers"]
    assert [one["id"] for one in kept["answer"]["items"]] == ["i11", "i10"]


def test_two_towers_equal_precomputed_scores(data: Path, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((13, 8))
    one = {"query": follows(tmp_path / "m.onnx", ITEMS, vectors @ vectors[1:].T)}
    two = towers(tmp_path, ITEMS, vectors)
    for words in ((), ("--negatives", "3"), ("--split", "random", "--seed", "4", "--metric", "map")):
        scores = _run("valid", tmp_path, one, *words, data_path=data, batch_size=4)
        products = _run("valid", tmp_path, two, *words, data_path=data, batch_size=3)
        assert products["metric"] == pytest.approx(scores["metric"])
        assert products["secondary"] == pytest.approx(scores["secondary"])


def test_item_vectors_are_cached_with_the_journal(data: Path, tmp_path: Path) -> None:
    two = towers(tmp_path, ITEMS, np.random.default_rng(0).standard_normal((13, 8)))
    words = ("--resume", str(tmp_path / "kept"))
    first = _run("valid", tmp_path, two, *words, data_path=data)
    (file,) = (tmp_path / "kept" / "items").glob("*.npy")
    assert np.load(file).shape == (12, 8)
    file.write_bytes(b"damaged")
    assert _run("valid", tmp_path, two, *words, data_path=data)["metric"] == first["metric"]


def test_sampled_items_are_independent_of_batches(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, np.random.default_rng(1).standard_normal((13, 12)))}
    words = ("--negatives", "4", "--depth", "5", "--cut", "5")
    runs = [_run("valid", tmp_path, ckpt, *words, data_path=data, batch_size=size) for size in (1, 5)]
    assert runs[0]["metric"] == runs[1]["metric"]
    assert runs[0]["secondary"] == runs[1]["secondary"]
    assert runs[0]["secondary"]["recall5"] == 1.0  # all five candidates are ranked, and one is right
    other = _run("valid", tmp_path, ckpt, *words, "--seed", "1", data_path=data)
    assert other["metric"] != runs[0]["metric"]


def test_new_items_use_their_features(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vectors = np.ones((12, 4))
    vectors[0] = 9  # what is unknown
    two = towers(tmp_path, ITEMS[:-1], vectors)
    (found,) = _run("single", tmp_path, two, "--users", "u0", "--topk", "1", data_path=data)["answers"]
    assert found["answer"]["items"][0]["id"] == "i11"
    _run("valid", tmp_path, two, data_path=data)
    assert "hint: 1 of 12 items" in capsys.readouterr().err


def test_unknown_items_are_left_out_counted_and_missed(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [*ITEMS[2:5], *ITEMS[6:]]  # not i0, i1, i5
    ckpt = {"query": follows(tmp_path / "m.onnx", known, np.random.default_rng(0).standard_normal((10, 9)))}
    found = _run("valid", tmp_path, ckpt, data_path=data)
    assert found["code"] == 0
    said = "".join(capsys.readouterr())
    assert "3 of 12 items are not in the model" in said
    # of the first four items u0 loses i0 and i1, u1 i1, and u2 to u5 i5; what is right for u1 is i5
    assert "7 items in 6 of 7 histories are not in the model" in said
    assert "1 of the target items" in said
    assert found["warning_counts"] == {"unknown items": 7, "histories with unknown items": 6, "unknown right items": 1}


def test_user_with_unknown_items_only_is_skipped(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS[:10], np.ones((11, 10)))}
    found = _run("valid", tmp_path, ckpt, data_path=data)
    assert (found["code"], found["samples"]) == (1, 6)
    (failure,) = found["failures"]
    assert failure["name"] == "user once"
    assert "its history has 1 items" in failure["reason"]


def test_unknown_users_and_histories(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, _next())}
    found = _run("multi", tmp_path, ckpt, "--users", "u1", "nobody", data_path=data)
    assert found["code"] == 1
    assert [one["answer"]["user"] for one in found["answers"]] == ["u1"]
    found = _run("single", tmp_path, ckpt, "--history", "i3", "i7", "--save", str(tmp_path / "out"), data_path=data)
    assert found["answers"][0]["answer"]["items"][0]["id"] == "i8"
    assert (tmp_path / "out" / "history.png").is_file()
    with pytest.raises(DataError, match="--history is empty"):
        _run("single", tmp_path, ckpt, "--history", "", data_path=data)
    with pytest.raises(DataError, match="--users nobody"):
        _run("single", tmp_path, ckpt, "--users", "nobody", data_path=data)


def test_other_split_than_the_training_is_rejected(data: Path, tmp_path: Path) -> None:
    note = {"split": "random", "seed": 3}
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, _next(), recommendation=note)}
    with pytest.raises(ConfigError, match=r"random.*--split random --seed 3"):
        _run("valid", tmp_path, ckpt, data_path=data)
    with pytest.raises(ConfigError, match="--seed 3"):
        _run("valid", tmp_path, ckpt, "--split", "random", data_path=data)
    assert _run("valid", tmp_path, ckpt, "--split", "random", "--seed", "3", data_path=data)["samples"]


def test_nan_in_item_vectors_makes_all_scores_nan(data: Path, tmp_path: Path) -> None:
    vectors = np.ones((13, 4))
    vectors[12] = np.nan  # i11: in the history of "once" alone, and an item that anybody may get
    found = _run("valid", tmp_path, towers(tmp_path, ITEMS, vectors), data_path=data)
    assert (found["code"], len(found["nan_outputs"])) == (1, 7)
    table = _next()
    table[1] = np.nan  # the row of i0, which is nobody's last item
    assert _run("valid", tmp_path, {"query": follows(tmp_path / "m.onnx", ITEMS, table)}, data_path=data)["code"] == 0
    table[4, 2] = np.nan  # one score behind i3, which is the last of u0's history
    found = _run("valid", tmp_path, {"query": follows(tmp_path / "m.onnx", ITEMS, table)}, data_path=data)
    assert (found["code"], found["nan_outputs"]) == (1, ["user u0"])


def test_mismatched_models_are_one_line(data: Path, tmp_path: Path) -> None:
    two = towers(tmp_path, ITEMS, np.ones((13, 4)))
    with pytest.raises(ModelError, match="12 items"):
        _run("valid", tmp_path, {"query": two["query"]}, data_path=data)
    scores = follows(tmp_path / "m.onnx", ITEMS, _next())
    with pytest.raises(ModelError, match=r"vectors of 4 .*item=FILE"):
        _run("valid", tmp_path, {"query": scores, "item": two["item"]}, data_path=data)
    with pytest.raises(ModelError, match="no stored item names"):
        _run("valid", tmp_path, {"query": two["item"]}, data_path=data)
    other = follows(tmp_path / "n.onnx", ["a", "b"], np.ones((3, 2)))
    with pytest.raises(ModelError, match="all 12 items"):
        _run("valid", tmp_path, {"query": other}, data_path=data)
    with pytest.raises(ConfigError, match=r"--places 7: .* 4 items"):
        _run("valid", tmp_path, {"query": scores}, "--places", "7", data_path=data)
    with pytest.raises(ConfigError, match="--users and --history"):
        _run("single", tmp_path, {"query": scores}, "--users", "u1", "--history", "i1", data_path=data)
    with pytest.raises(ConfigError, match=r"--depth 5 .*--cut"):
        _run("valid", tmp_path, {"query": scores}, "--depth", "5", data_path=data)


@pytest.mark.slow
def test_numbers_of_items_above_2048_are_kept_on_the_card(tmp_path: Path) -> None:
    """Float16 counts by twos above 2048: were numbers of items stored so, a neighbour's row would be found."""
    names = [f"n{n}" for n in range(3000)]
    rows = [f"u{n}\tn{n}\t4\t0\nu{n}\tn{n + 1}\t4\t1" for n in range(2900, 2960)]
    (tmp_path / "r.inter").write_text("\n".join([HEAD, *rows]))
    chance = np.random.default_rng(0)
    vectors = chance.choice([-1.0, 1.0], (3001, 16))
    vectors[2:] = 0.25 * vectors[2:] + vectors[1:-1]
    two = towers(tmp_path, names, vectors)
    plain = _run("valid", tmp_path, two, data_path=tmp_path / "r.inter", batch_size=64)
    card = _run("valid", tmp_path, two, "--target", "sdaa", data_path=tmp_path / "r.inter", batch_size=64)
    assert card["metric"] == pytest.approx(plain["metric"], rel=0.01)


def test_a_script_with_users_accepts_a_history_and_other_ratings(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, _next())}
    (found,) = _run("multi", tmp_path, ckpt, "--history", "i3", data_path=data, users=["u1"])["answers"]
    assert found["answer"]["items"][0]["id"] == "i4"
    some = _run("multi", tmp_path, ckpt, data_path=data, users=["nobody", "u2", "u1"])
    assert (some["code"], [one["answer"]["user"] for one in some["answers"]]) == (0, ["u2", "u1"])
    assert len(_run("multi", tmp_path, ckpt, data_path=data, users=["nobody"])["answers"]) == 7
    with pytest.raises(ConfigError, match="--users and --history"):
        _run("multi", tmp_path, ckpt, "--users", "u1", "--history", "i1", data_path=data, users=["u1"])


def test_reason_is_reported_if_all_users_are_skipped(data: Path, tmp_path: Path) -> None:
    ckpt = {"query": follows(tmp_path / "m.onnx", ITEMS, _next())}
    (data / "r.inter").write_text("\n".join([HEAD, *["u1\ti1\t4\t1"] * 3]))
    with pytest.raises(DataError, match=r"\(1 with nothing new"):
        _run("valid", tmp_path, ckpt, data_path=data)
    (data / "r.inter").write_text("\n".join([HEAD, "u1\ti1\t4\t1", "u1\ti2\t4\t"]))
    with pytest.raises(ConfigError, match=r"r\.inter: 1 of 2 .*--split"):
        _run("valid", tmp_path, ckpt, data_path=data)
