"""Class folders that are a subset of a model's classes, or in another order: matched by name or rejected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import DataError
from utils.imagenet_classes import WNIDS
from utils.metrics.class_names import decided_outputs, outputs_of, spelling
from utils.metrics.classification import ClassFolders, TopK
from utils.metrics.f1 import Accuracy
from utils.tasks.classification.task import ShiftedClasses


def test_wordnet_ids_of_imagenet() -> None:
    assert len(set(WNIDS)) == 1000
    assert list(WNIDS) == sorted(WNIDS)
    assert (WNIDS[0], WNIDS[277], WNIDS[278], WNIDS[999]) == ("n01440764", "n02119022", "n02119789", "n15075141")


def test_a_subset_of_imagenet_is_matched_by_ids() -> None:
    found = outputs_of(["n01440764", "n02119789", "n15075141"], 1000)
    assert found.tolist() == [0, 278, 999]


def test_ids_in_the_model_take_precedence() -> None:
    assert outputs_of(["n2"], 3, class_ids=["n3", "n1", "n2"]).tolist() == [2]


def test_folders_are_matched_by_labels() -> None:
    assert outputs_of(["ant", "bee"], 3, labels=["bee", "cat", "ant"]).tolist() == [2, 0]


def test_as_many_folders_as_outputs() -> None:
    assert outputs_of(["a", "b"], 2).tolist() == [0, 1]
    assert outputs_of(["n01440764", "n02119789"], 2, labels=["fish", "fox"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("folders", "count", "labels", "message"),
    [
        (["a", "b"], 1000, None, "2 class folders, .*1000 classes"),
        (
            ["n00000000", "n01440764"],
            1000,
            None,
            "'n00000000' .*WordNet ids",
        ),
        (["ant", "bea"], 2, ["ant", "bee"], "'bea' .*labels"),
        (["crane", "ox"], 3, ["crane", "crane", "ox"], "'crane' occurs twice .*labels"),
        (["1", "2", "3"], 3, None, "'3' .*3 classes .*count from 1"),
        (["0", "1", "7"], 3, None, "'7' .*3 classes"),
        (["0", "12"], 11, list("abcdefghijk"), "'12' is a number"),
        (["00", "0"], 2, None, "'00' and '0' are both class 0"),
        (["0", "1", "other"], 3, None, "'0' is a number.*'other'"),
        (["0", "1"], 5, list("abcd0"), "'1' is not among"),
        (["cat", "Cat"], 2, ["cat", "dog"], "'cat' and 'Cat' are both 'cat'"),
        (["CAT", "dog"], 3, ["cat", "Cat", "dog"], "'CAT' occurs twice"),
    ],
)
def test_ambiguous_folders(folders: list[str], count: int, labels: list[str] | None, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        outputs_of(folders, count, labels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("folders", "count", "labels", "expected", "line"),
    [
        (sorted(map(str, range(12))), 12, None, [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9], "'10' is class 10"),
        (sorted(map(str, range(12))), 12, list("abcdefghijkl"), [0, 1, 10, 11, *range(2, 10)], "'10' is class 10"),
        ([f"{i:02}" for i in range(12)], 12, None, list(range(12)), ""),
        (list("0123456789"), 10, None, list(range(10)), ""),
        (["0", "2", "5"], 6, None, [0, 2, 5], "3 of the model's 6 classes"),
        (["1", "2"], 6, None, [1, 2], "count from 1"),
        (["001", "2", "10"], 11, None, [1, 2, 10], "3 of the model's 11"),
        (["Cat", "DOG"], 3, ["dog", "bird", "cat"], [2, 0], "'Cat' is 'cat'"),
        (["great_white-shark"], 2, ["ox", "Great white shark"], [1], "Great white shark"),
        (["00", "01", "02"], 3, ["2", "1", "0"], [2, 1, 0], "'00' is '0'"),
        (["Cafe\u0301"], 2, ["a", "Caf\u00e9"], [1], "match the model"),
        (["0", "1", "10", "2"], 4, ["2", "10", "1", "0"], [3, 2, 1, 0], ""),
        (["uno", "zwei"], 2, ["one", "two"], [0, 1], "not among the model's labels"),
        ([f"c{i}" for i in (0, 1, 10, 2, *range(3, 10))], 11, None, list(range(11)), "'c10'"),
        (["ant", "bee"], 2, None, [0, 1], ""),
    ],
)
def test_the_first_matching_rule_applies(
    folders: list[str], count: int, labels: list[str] | None, expected: list[int], line: str
) -> None:
    found, expected_error = decided_outputs(folders, count, labels)
    assert found.tolist() == expected
    assert bool(expected_error) == bool(line)
    assert line in expected_error
    assert "\n" not in expected_error


NAMES = st.one_of(
    st.integers(0, 12).map(str),
    st.integers(0, 12).map(lambda n: f"{n:03}"),
    st.sampled_from(["cat", "Cat", "ox", "c10", "c2"]),
)


@given(
    st.lists(NAMES, unique=True, min_size=1), st.integers(1, 14), st.none() | st.lists(NAMES, unique=True, min_size=1)
)
def test_numbers_and_labels_map_to_their_classes(folders: list[str], count: int, labels: list[str] | None) -> None:
    folders = sorted(folders)
    try:
        found, line = decided_outputs(folders, count, labels)
    except DataError:
        return
    assert len(set(found.tolist())) == len(folders)
    assert 0 <= found.min() <= found.max() < count
    named = (
        labels is not None and len(labels) == count and any(spelling(name) in map(spelling, labels) for name in folders)
    )
    for name, place in zip(folders, found.tolist(), strict=True):
        if named:
            assert spelling(labels[place]) == spelling(name)  # type: ignore[index]
        elif name.isdecimal():
            assert int(name) == place
    in_order = found.tolist() == list(range(count))
    assert in_order or named or line


def test_one_warning_per_evaluation() -> None:
    metric = TopK(1)
    metric.folders = ClassFolders(sorted(map(str, range(11))))
    with pytest.warns(UserWarning, match="folders are numbers"):
        metric.update(np.eye(11), np.array([0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 2]))
    metric.update(np.eye(11), np.array([0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 2]))
    assert metric.compute() == 1


@pytest.mark.parametrize("kind", [str, int, np.int64])
def test_numeric_labels_of_any_type(kind: type) -> None:
    stars = ["1", "2", "3", "4", "5"]
    metric = Accuracy(1, stars)
    metric.update(np.eye(5), [kind(star) for star in stars])
    assert metric.compute() == 1
    with pytest.raises(DataError, match="not a class"):
        Accuracy(1, stars).update(np.eye(5), [kind(0)] * 5)


@pytest.mark.parametrize(("shift", "word"), [(1, "higher"), (-1, "lower")])
def test_labels_off_by_one_are_reported(shift: int, word: str) -> None:
    labels = np.arange(40) % 6 + 1
    hinter = ShiftedClasses()
    for part in np.split(labels, 4):
        hinter.see(np.eye(8)[part + shift], None, part)
    (line,) = hinter.hints()
    assert word in line
    right, constant = ShiftedClasses(), ShiftedClasses()
    right.see([np.eye(8)[labels]], None, labels)
    constant.see(np.eye(8)[np.full(40, 3)], None, np.sort(labels))
    assert not right.hints()
    assert not constant.hints()


def test_top_k_counts_by_the_models_outputs() -> None:
    metric = TopK(1)
    metric.folders = ClassFolders(["n01440764", "n15075141"])
    scores = np.zeros((3, 1000), np.float32)
    scores[[0, 1, 2], [0, 999, 1]] = 1
    assert metric.update(scores, np.array([0, 1, 1])).values.tolist() == [True, True, False]
    assert metric.compute() == 2 / 3
