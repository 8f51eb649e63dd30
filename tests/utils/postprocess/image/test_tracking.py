"""The tracker: its assignment beside all possible ones, and identities of real digits that move and cross."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import InputError
from utils.postprocess.image.nms import overlaps
from utils.postprocess.image.tracking import LONGEST, Tracker, assigned

pytest.importorskip("scipy")

scores = st.integers(0, 4).flatmap(
    lambda rows: st.integers(0, 4).flatmap(
        lambda columns: st.lists(
            st.lists(st.integers(0, 8), min_size=columns, max_size=columns), min_size=rows, max_size=rows
        ).map(lambda table: np.array(table, np.float64).reshape(rows, columns) / 8)
    )
)


def best_sum(table: np.ndarray) -> float:
    """Return the largest sum of scores in different rows and columns, by trying all."""
    rows, columns = table.shape
    padded = np.zeros((max(rows, columns), max(rows, columns)))
    padded[:rows, :columns] = table
    orders = permutations(range(len(padded)))
    return max(float(sum(padded[row, column] for row, column in enumerate(order))) for order in orders)


@given(table=scores)
def test_the_assignment_has_the_largest_sum(table: np.ndarray) -> None:
    pairs = assigned(table)
    assert all(table[pair] > 0 for pair in pairs)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert sum(table[pair] for pair in pairs) == pytest.approx(best_sum(table))


def box(x: float, y: float, side: float = 20) -> list[float]:
    return [x, y, x + side, y + side]


numbers = st.lists(
    st.tuples(st.floats(0, 300), st.floats(0, 300), st.floats(-4, 4), st.floats(-4, 4), st.sampled_from("ab")),
    min_size=1,
    max_size=4,
)


@settings(max_examples=50)
@given(objects=numbers, frames=st.integers(2, 12))
def test_one_object_keeps_its_number_and_numbers_are_unique(objects: list[tuple], frames: int) -> None:
    """For any objects: a number per box, none twice in a frame; a single object of a class is one track."""
    tracker = Tracker()
    of_class: dict[str, set[int]] = {}
    for passed in range(frames):
        boxes = np.array([box(x + passed * u, y + passed * v) for x, y, u, v, _ in objects])
        labels = [one[4] for one in objects]
        found = tracker.update(boxes, labels)
        assert len(set(found)) == len(found) == len(objects)
        for label, number in zip(labels, found, strict=True):
            of_class.setdefault(label, set()).add(number)
    for label, seen in of_class.items():
        if sum(one[4] == label for one in objects) == 1:
            assert len(seen) == 1
    assert not of_class.get("a", set()) & of_class.get("b", set())


def followed(paths: dict[str, list[list[float] | None]], label: str = "3") -> dict[str, list[int]]:
    """Return the numbers that each object gets; ``None``: it is not found in this frame."""
    tracker, found = Tracker(), {name: list[int]() for name in paths}
    for number in range(len(next(iter(paths.values())))):
        seen = {name: path[number] for name, path in paths.items() if path[number] is not None}
        numbers = tracker.update(np.array(list(seen.values())).reshape(-1, 4), [label] * len(seen))
        for name, one in zip(seen, numbers, strict=True):
            found[name].append(one)
    return found


def test_two_objects_of_a_class_that_cross_keep_their_numbers() -> None:
    """Their boxes overlap by up to 0.6 in the middle; the velocity tells which is which."""
    across = {
        "right": [box(4.0 * step, 100) for step in range(50)],
        "left": [box(200 - 4.0 * step, 105) for step in range(50)],
    }
    most = max(float(overlaps([a], [b])[0, 0]) for a, b in zip(*across.values(), strict=True))
    assert most > 0.5
    assert {name: set(seen) for name, seen in followed(across).items()} == {"right": {1}, "left": {2}}


def test_without_the_velocity_they_swap() -> None:
    """The test above needs the motion model: boxes assigned by their last places exchange their numbers."""
    last, found = [box(0, 100), box(176, 100)], [1, 2]
    for step in range(1, 20):
        now = [box(10.0 * step, 100), box(176 - 10.0 * step, 100)]
        before = found.copy()
        for row, column in assigned(overlaps(last, now)):
            found[column] = before[row]
        last = now
    assert found == [2, 1]


def test_an_object_that_is_hidden_for_some_frames() -> None:
    path: list[list[float] | None] = [box(5.0 * step, 50) for step in range(40)]
    for step in range(15, 25):
        path[step] = None
    assert set(followed({"one": path})["one"]) == {1}


def test_new_objects_have_new_numbers() -> None:
    gone: list[list[float] | None] = [box(10, 10)] * 5 + [None] * (LONGEST + 5)
    late: list[list[float] | None] = [None] * 3 + [box(200, 10)] * (LONGEST + 7)
    again: list[list[float] | None] = [None] * (LONGEST + 6) + [box(10, 10)] * 4
    assert {name: set(seen) for name, seen in followed({"gone": gone, "late": late, "again": again}).items()} == {
        "gone": {1},
        "late": {2},
        "again": {3},
    }


def test_classes_are_followed_separately() -> None:
    tracker = Tracker()
    assert tracker.update(np.array([box(0, 0), box(1, 1)]), ["3", "8"]) == [1, 2]
    assert tracker.update(np.array([box(1, 1), box(2, 2)]), ["8", "3"]) == [2, 1]
    assert tracker.update(np.array([box(1, 1)]), ["5"]) == [3]
    assert tracker.update(np.empty((0, 4)), []) == []


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="1 boxes and 2 labels"):
        Tracker().update(np.array([box(0, 0)]), ["3", "8"])
