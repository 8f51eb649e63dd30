"""Scenes of handwritten digits: reproducible, correct, with disjoint training and validation sources."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from engine import ConfigError
from utils.datasets.synthetic import digit_scenes
from utils.datasets.synthetic.digit_scenes import (
    HELD_OUT_RECIPE,
    PHOTOS,
    SIZE,
    Scene,
    compose,
    sources,
    split_digits,
    training_batches,
)

pytest.importorskip("sklearn")
pytest.importorskip("skimage")

FREE = re.compile(r"CC0 1\.0|public domain|CC BY 2\.0")
"""Licences that allow to distribute modified images."""


@pytest.fixture(scope="module")
def held_out() -> list[Scene]:
    made_of = sources("val")
    return [compose(made_of, 3, number) for number in range(20)]


def test_shapes_and_dtypes(held_out: list[Scene]) -> None:
    for scene in held_out:
        assert (scene.image.shape, scene.image.dtype) == ((SIZE, SIZE, 3), np.uint8)
        assert (scene.mask.shape, scene.mask.dtype) == ((SIZE, SIZE), np.uint8)
        assert scene.boxes.shape == (len(scene.labels), 4)
        assert len(scene.labels) >= 1
    assert len({label for scene in held_out for label in scene.labels.tolist()}) == 10
    heights = np.concatenate([scene.boxes[:, 3] - scene.boxes[:, 1] for scene in held_out])
    assert heights.min() < 32 < 50 < heights.max() <= 66


def test_boxes_are_tight_around_the_ink_in_the_mask(held_out: list[Scene]) -> None:
    for scene in held_out:
        covered = np.zeros_like(scene.mask)
        for (left, top, right, bottom), label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            assert 0 <= left < right <= SIZE
            assert 0 <= top < bottom <= SIZE
            inside = scene.mask[top:bottom, left:right] == label + 1
            assert inside[0].any()
            assert inside[-1].any()
            assert inside[:, 0].any()
            assert inside[:, -1].any()
            covered[top:bottom, left:right][inside] = 1
        np.testing.assert_array_equal(covered, scene.mask > 0)


def test_ink_is_visible(held_out: list[Scene]) -> None:
    """A digit's ink differs from its surroundings by the contrast."""
    differences = []
    for scene in held_out:
        grey = scene.image.mean(axis=-1)
        for (left, top, right, bottom), label in zip(scene.boxes, scene.labels, strict=True):
            there = np.s_[top:bottom, left:right]
            ink = scene.mask[there] == label + 1
            around = scene.mask[there] == 0
            if around.any():
                differences.append(abs(grey[there][ink].mean() - grey[there][around].mean()))
    assert np.median(differences) > 40


def test_held_out_scenes_have_less_invisible_ink_than_training_scenes() -> None:
    """Ink in the colour of its background is avoided as the recipe requires."""
    made_of = sources("val")
    counts = [
        sum(len(compose(made_of, 3, number, recipe=recipe).labels) for number in range(12))
        for recipe in (HELD_OUT_RECIPE, HELD_OUT_RECIPE._replace(visible=0.0), HELD_OUT_RECIPE._replace(visible=500.0))
    ]
    assert counts[2] == 0 < counts[0] <= counts[1]


def test_a_scene_depends_only_on_seed_and_number(held_out: list[Scene]) -> None:
    made_of = sources("val")
    for number in (11, 4):
        for one, two in zip(compose(made_of, 3, number), held_out[number], strict=True):
            np.testing.assert_array_equal(one, two)
    assert (compose(made_of, 4, 4).image != held_out[4].image).any()


def test_parts_share_no_digit_and_no_photograph() -> None:
    train, val = sources("train"), sources("val")
    assert (len(train.digits), len(val.digits)) == (1437, 360)
    assert {photo.part for photo in PHOTOS} == {"train", "val"}
    assert len({photo.file for photo in PHOTOS}) == len(PHOTOS) == len(train.photos) + len(val.photos)
    one, two = split_digits(np.concatenate([train.labels, val.labels]))
    assert not set(one.tolist()) & set(two.tolist())
    # a few of the 1797 images are duplicates; the split is by index
    ours = {np.asarray(digit).tobytes() for digit in val.digits}
    assert len(ours & {np.asarray(digit).tobytes() for digit in train.digits}) <= 3


def test_the_split_is_that_of_the_classification_example() -> None:
    from sklearn.datasets import load_digits
    from support import DIGITS

    labels = load_digits().target
    held_out = split_digits(labels)[1]
    committed = sorted(int(path.stem) for path in (DIGITS / "data" / "val").glob("*/*.png"))
    assert held_out.tolist() == committed
    assert sources("val").labels.tolist() == labels[held_out].tolist()


def test_licences_allow_distribution() -> None:
    assert all(FREE.fullmatch(photo.licence) and photo.author for photo in PHOTOS)


@pytest.mark.slow
def test_training_batches_are_reproducible() -> None:
    first, second = (
        list(itertools.islice(training_batches(5, 2, 1, kept=50), 3)),
        list(itertools.islice(training_batches(5, 2, 1, kept=50), 3)),
    )
    for one, two in zip(itertools.chain(*first), itertools.chain(*second), strict=True):
        np.testing.assert_array_equal(one.image, two.image)
    assert [len(batch) for batch in first] == [2, 2, 2]


def test_another_part_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^part 'test' .*train, val$"):
        sources("test")


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digit_scenes, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"skimage; run: pip install scikit-image$"):
        sources("val")
