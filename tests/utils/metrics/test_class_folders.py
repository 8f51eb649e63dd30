"""Class folders that are not all of a model's classes, or not in its order, are told by name or refused."""

from __future__ import annotations

import numpy as np
import pytest

from engine import DataError
from utils.imagenet_classes import WNIDS
from utils.metrics.class_names import outputs_of
from utils.metrics.classification import ClassFolders, TopK


def test_wnids_are_those_of_imagenet() -> None:
    assert len(set(WNIDS)) == 1000
    assert list(WNIDS) == sorted(WNIDS)
    assert (WNIDS[0], WNIDS[277], WNIDS[278], WNIDS[999]) == ("n01440764", "n02119022", "n02119789", "n15075141")


def test_some_of_imagenets_folders_are_told_by_their_ids() -> None:
    found = outputs_of(["n01440764", "n02119789", "n15075141"], 1000)
    assert found.tolist() == [0, 278, 999]


def test_ids_that_the_model_stores_come_first() -> None:
    assert outputs_of(["n2"], 3, class_ids=["n3", "n1", "n2"]).tolist() == [2]


def test_folders_are_told_by_the_models_labels() -> None:
    assert outputs_of(["ant", "bee"], 3, labels=["bee", "cat", "ant"]).tolist() == [2, 0]


def test_as_many_folders_as_outputs_are_in_sorted_order() -> None:
    assert outputs_of(["a", "b"], 2).tolist() == [0, 1]
    assert outputs_of(["n01440764", "n02119789"], 2, labels=["fish", "fox"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("folders", "count", "labels", "message"),
    [
        (["a", "b"], 1000, None, "2 class folders, and the model has 1000 classes: which are they"),
        (
            ["n00000000", "n01440764"],
            1000,
            None,
            "class folder 'n00000000' is not among the model's classes' WordNet ids",
        ),
        (["ant", "bea"], 2, ["ant", "bee"], "class folder 'bea' is not among the model's labels"),
        (["crane", "ox"], 3, ["crane", "crane", "ox"], "class folder 'crane' stands twice among the model's labels"),
        (["0", "1", "10", *"23456789"], 11, list("abcdefghijk"), "numbers that sort otherwise as text"),
    ],
)
def test_what_cannot_be_told_is_one_line(
    folders: list[str], count: int, labels: list[str] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        outputs_of(folders, count, labels)
    assert "\n" not in str(caught.value)


def test_top_k_counts_by_the_models_outputs() -> None:
    metric = TopK(1)
    metric.folders = ClassFolders(["n01440764", "n15075141"])
    scores = np.zeros((3, 1000), np.float32)
    scores[[0, 1, 2], [0, 999, 1]] = 1
    assert metric.update(scores, np.array([0, 1, 1])).tolist() == [True, True, False]
    assert metric.compute() == 2 / 3
