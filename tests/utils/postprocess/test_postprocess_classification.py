"""Scores and labels from a classifier's outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

import utils.postprocess.paddle.classification as paddle_face
import utils.postprocess.pytorch.classification as pytorch_face
from engine import ConfigError, DataError, InputError
from utils.postprocess.pytorch.classification import answers, labels_from, postprocess, scores

LOGITS = np.array([[0.0, 3.0, 1.0], [5.0, -5.0, 4.0]], np.float32)


class Tensor:
    """Replaces a torch or paddle tensor: an array with ``numpy()``."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def numpy(self) -> np.ndarray:
        return self.array


def test_scores_equal_scipys_softmax() -> None:
    special = pytest.importorskip("scipy.special")
    logits = np.random.default_rng(0).normal(0, 30, (64, 1000)).astype(np.float32)
    ours = scores(logits)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, special.softmax(logits.astype(np.float64), axis=1), rtol=2e-5, atol=1e-38)


def test_scores_of_float16_do_not_overflow() -> None:
    ours = scores(np.array([[65504, 0, -65504]], np.float16))
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, [[1, 0, 0]])


@pytest.mark.parametrize(
    "outputs",
    [
        LOGITS,
        LOGITS.astype(np.float16),
        LOGITS[:, :, None, None],
        [LOGITS],
        (LOGITS,),
        Tensor(LOGITS),
        [Tensor(LOGITS)],
    ],
)
def test_every_form_of_outputs(outputs: Any) -> None:
    np.testing.assert_allclose(scores(outputs), scores(LOGITS))
    labels = [[answer["label"] for answer in sample] for sample in postprocess(outputs, topk=2)]
    assert labels == [["1", "2"], ["0", "2"]]


def test_inputs_do_not_change() -> None:
    logits = LOGITS.copy()
    postprocess(logits, topk=3)
    np.testing.assert_array_equal(logits, LOGITS)


def test_one_sample_gives_a_flat_list() -> None:
    expected = [{"score": pytest.approx(scores(LOGITS)[0, 1]), "label": "b"}]
    assert postprocess(LOGITS[:1], target="onnx", topk=1, labels=["a", "b", "c"]) == expected
    assert postprocess(LOGITS[0], labels=["a", "b", "c"]) == expected
    assert answers(LOGITS[0], labels=["a", "b", "c"]) == [expected]
    assert type(postprocess(LOGITS[0])[0]["score"]) is float


def test_topk_is_clipped_to_the_classes() -> None:
    assert [answer["label"] for answer in postprocess(LOGITS[0], topk=99)] == ["1", "2", "0"]
    for topk in (0, -1):
        with pytest.raises(ConfigError, match=f"topk {topk} "):
            postprocess(LOGITS, topk=topk)


def test_nan_is_passed_on_and_ranked_last() -> None:
    best = answers(np.array([[1.0, np.nan, 2.0], [1.0, 0.0, 2.0], [np.nan] * 3]), topk=3)
    assert [answer["label"] for answer in best[0]] == ["2", "0", "1"]
    assert all(np.isnan(answer["score"]) for answer in best[0] + best[2])
    assert [answer["label"] for answer in best[2]] == ["0", "1", "2"]
    assert sum(answer["score"] for answer in best[1]) == pytest.approx(1)


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.floats(-9, 9, width=16)),
    st.integers(1, 9),
)
def test_order_equals_a_stable_sort(logits: np.ndarray, topk: int) -> None:
    best = answers(logits, topk)
    assert [[int(answer["label"]) for answer in sample] for sample in best] == [
        sorted(range(len(row)), key=lambda index: -row[index])[:topk] for row in logits
    ]
    np.testing.assert_allclose(scores(logits).sum(axis=1), 1, rtol=1e-5)


@given(
    hnp.arrays(np.float16, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.floats(width=16)),
    st.integers(1, 6),
)
def test_any_numbers(logits: np.ndarray, topk: int) -> None:
    best = answers(logits, topk)
    assert [len(sample) for sample in best] == [min(topk, logits.shape[1])] * len(logits)


@pytest.mark.parametrize(
    "outputs",
    [
        np.zeros((2, 3, 4)),
        np.zeros((2, 3, 1, 2)),
        np.zeros((0, 3)),
        np.zeros((2, 0)),
        np.zeros((2, 2), bool),
        np.float32(1),
        [],
        [LOGITS, LOGITS],
        "text",
        None,
    ],
)
def test_invalid_outputs(outputs: Any) -> None:
    with pytest.raises(InputError, match=r"^(cannot classify|got \d outputs)"):
        scores(outputs)


def test_labels_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "synset.txt"
    path.write_text("n01440764 tench, Tinca tinca\nn014 not an id\n鱼\n\n", encoding="utf-8")
    expected = ["tench, Tinca tinca", "n014 not an id", "鱼"]
    assert labels_from(path) == labels_from(str(path)) == expected
    assert postprocess(LOGITS[0], topk=3, labels=path)[2]["label"] == expected[0]


def test_labels_from_metadata() -> None:
    metadata = {"class_labels": json.dumps(["a", "b", "鱼"]), "preprocess": "{}"}
    assert labels_from(metadata) == ["a", "b", "鱼"]
    assert postprocess(LOGITS[1], topk=2, labels=metadata)[1]["label"] == "鱼"
    assert labels_from({}) is None
    assert labels_from(None) is None
    assert postprocess(LOGITS[1], labels={})[0]["label"] == "0"


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[1, 2, 3]", '"abc"', "null"])
def test_broken_metadata(text: str) -> None:
    with pytest.raises(DataError, match="class_labels"):
        labels_from({"class_labels": text})


def test_unreadable_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.txt: cannot read labels"):
        labels_from(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(DataError, match="holds no labels"):
        labels_from(tmp_path / "empty.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="UTF-8"):
        labels_from(tmp_path / "latin.txt")


@pytest.mark.parametrize("count", [0, 2, 4])
def test_label_count(count: int) -> None:
    with pytest.raises(DataError, match=f"{count} labels .* 3 classes"):
        postprocess(LOGITS, labels=["x"] * count)


def test_paddle_has_the_same_functions() -> None:
    assert paddle_face.__all__ == pytorch_face.__all__
    assert paddle_face.postprocess is postprocess
