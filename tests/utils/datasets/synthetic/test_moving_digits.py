"""Videos of moving digits: their boxes are where the ink is, and the same seed gives the same video."""

from __future__ import annotations

import numpy as np
from PIL import Image

from utils.datasets.synthetic.digit_scenes import Sources
from utils.datasets.synthetic.moving_digits import Mover, MovingDigits


def test_a_digit_moves_and_leaves() -> None:
    ink = np.ones((10, 6), np.float32)
    scene = MovingDigits([Mover(7, 3, ink, (2.0, 4.0), (4.0, 0.5), range(2, 20))], Image.new("RGB", (40, 30)), seed=1)
    assert scene.size == (40, 30)
    assert len(scene.frame(1).boxes) == 0
    for number, left, top in ((2, 2, 4), (3, 6, 4), (6, 18, 6)):
        found = scene.frame(number)
        assert found.boxes.tolist() == [[left, top, left + 6, top + 10]]
        assert (found.labels, found.numbers) == ([3], [7])
        bright = found.image.mean(axis=-1) > 50
        rows, columns = np.nonzero(bright)
        assert [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] == found.boxes[0].tolist()
    assert scene.frame(11).boxes.tolist() == [[38, 8, 40, 18]] or len(scene.frame(11).boxes) == 0
    assert len(scene.frame(15).boxes) == 0


def test_random_videos_are_reproducible() -> None:
    rng = np.random.default_rng(0)
    digits = [Image.fromarray(rng.integers(0, 256, (8, 8)).astype(np.uint8)) for _ in range(3)]
    photo = Image.fromarray(rng.integers(0, 256, (50, 50, 3)).astype(np.uint8))
    made_of = Sources(digits, np.array([1, 2, 3]), [photo])
    one, again, other = (MovingDigits.random(made_of, seed, side=120, digits=4, frames=30) for seed in (1, 1, 2))
    assert one.size == (120, 120)
    for number in (0, 10, 29):
        np.testing.assert_array_equal(one.frame(number).image, again.frame(number).image)
    assert any((one.frame(n).image != other.frame(n).image).any() for n in (0, 10, 29))
    seen = {number for n in range(30) for number in one.frame(n).numbers}
    assert len(seen) >= 2
    for n in range(30):
        boxes = one.frame(n).boxes
        assert (boxes >= 0).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert boxes.max(initial=0) <= 120


def test_movers_later_in_the_list_cover_earlier_ones() -> None:
    ink = np.ones((8, 8), np.float32)
    movers = [Mover(0, 1, ink, (4.0, 4.0), (0.0, 0.0), range(3)), Mover(1, 2, ink, (8.0, 4.0), (0.0, 0.0), range(3))]
    found = MovingDigits(movers, Image.new("RGB", (20, 16)), seed=3).frame(0)
    inside = found.image[6, 9].astype(float)
    assert np.abs(inside - found.image[6, 15]).max() < np.abs(found.image[6, 5].astype(float) - inside).max() + 25
    assert found.numbers == [0, 1]
    assert found.boxes.tolist() == [[4, 4, 12, 12], [8, 4, 16, 12]]
