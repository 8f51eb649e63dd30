"""Recall between images and captions, compared with a loop over all pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, InputError
from utils.metrics.definition import metric_from_json, metric_to_json
from utils.metrics.text.caption_recall import DIRECTIONS, CaptionRecall, Described


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def by_loop(pairs: list[Described], direction: str, cut: int, weights: np.ndarray) -> float:
    """Rank every candidate by its cosine, those of others first where equal."""
    hits, total = 0.0, 0.0
    candidates = [(owner, row) for owner, one in enumerate(pairs) for row in one.captions]
    for owner, one in enumerate(pairs):
        queries = [one.image] if direction == DIRECTIONS[0] else list(one.captions)
        others = candidates if direction == DIRECTIONS[0] else [(place, each.image) for place, each in enumerate(pairs)]
        for query in queries:
            ranked = sorted((-round(float(row @ query), 5), place == owner) for place, row in others)
            hits += weights[owner] * any(own for _, own in ranked[:cut])
            total += weights[owner]
    return hits / total


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(1, 4), st.sampled_from(DIRECTIONS), st.integers(0, 2**32 - 1))
def test_equals_a_loop(count: int, most: int, cut: int, direction: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    pairs = [
        Described(
            unit(chance.integers(-2, 3, 3) + 0.1), unit(chance.integers(-2, 3, (chance.integers(1, most + 1), 3)) + 0.1)
        )
        for _ in range(count)
    ]
    weights = chance.integers(1, 4, count).astype(np.float64)
    metric = CaptionRecall(direction, cut, most)
    metric.update(pairs, [()] * count)
    assert metric.value(metric._all(), weights) == pytest.approx(by_loop(pairs, direction, cut, weights))


def test_by_hand() -> None:
    """The second image's caption describes the first image too."""
    east, north = np.float32([1, 0]), np.float32([0, 1])
    pairs = [Described(east, unit(np.float32([[1, 0.1], [1, -3]]))), Described(north, unit(np.float32([[2, 1]])))]
    metric = CaptionRecall(most=2)
    metric.update(pairs, [(), ()])
    assert metric.name == "image_to_text_r1"
    assert metric.compute() == 1.0
    found = metric.secondary()
    assert (found["text_to_image_r1"], found["text_to_image_r5"]) == (pytest.approx(2 / 3), 1.0)
    assert (found["images"], found["captions"]) == (2.0, 3.0)


def test_constant_vectors_and_nan_find_nothing() -> None:
    same = unit(np.ones(4))
    pairs = [Described(same, same[None]) for _ in range(5)]
    lost = [Described(same * np.nan, same[None]), *pairs[1:]]
    for direction in DIRECTIONS:
        metric = CaptionRecall(direction)
        metric.update(pairs, [()] * 5)
        assert metric.compute() == 0.0
        metric = CaptionRecall(direction, cut=5)
        metric.update(lost, [()] * 5)
        assert metric.compute() < 1.0


def test_processes_merge_to_the_same_value() -> None:
    chance = np.random.default_rng(0)
    pairs = [Described(unit(chance.normal(size=8)), unit(chance.normal(size=(2, 8)))) for _ in range(12)]
    whole, parts = CaptionRecall(most=2), [CaptionRecall(most=2) for _ in range(2)]
    whole.update(pairs, [()] * 12)
    for place, part in enumerate(parts):
        part.update(pairs[place::2], [()] * 6)
    parts[0].merge(parts[1])
    assert parts[0].compute() == whole.compute()
    assert parts[0].secondary() == whole.secondary()


def test_it_can_be_made_again_from_json() -> None:
    made = metric_from_json(json.loads(json.dumps(metric_to_json(CaptionRecall(DIRECTIONS[1], 5, 3)))), None)
    assert (made.name, made.most) == ("text_to_image_r5", 3)


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="'both' must be one of"):
        CaptionRecall("both")
    with pytest.raises(ConfigError, match="at least 1"):
        CaptionRecall(cut=0)
    with pytest.raises(InputError, match="2 captions of an image; 1 to 1"):
        CaptionRecall().update([Described(np.ones(2), np.ones((2, 2)))], [()])
