"""Drawing of boxes."""

from __future__ import annotations

import numpy as np
from PIL import Image

from utils.postprocess.image.drawn_boxes import draw_boxes


def test_positions_of_boxes() -> None:
    source = Image.new("RGB", (400, 300))
    drawn = np.asarray(draw_boxes(source, [{"label": "cat", "score": 0.9, "box": [40, 100, 200, 250]}]))
    lit = drawn.any(axis=2)
    ys, xs = np.nonzero(lit)
    assert (xs.min(), xs.max(), ys.max()) == (40, 199, 249)
    assert 80 < ys.min() < 95  # the name, above the box
    assert not lit[102:248, 42:198].any()
    assert not np.asarray(source).any()


def test_a_name_is_inside_without_room_above() -> None:
    box = [40, 3, 200, 250]
    lit = np.asarray(draw_boxes(Image.new("RGB", (400, 300)), [{"label": "cat", "score": 0.9, "box": box}])).any(axis=2)
    assert not lit[:3].any()
    assert lit[8:14, 44:60].any()


def test_small_images_are_enlarged_and_empty_boxes_drawn() -> None:
    drawn = draw_boxes(Image.new("RGB", (10, 5)), [{"label": "猫", "score": 1.0, "box": [3.0, 2.0, 3.0, 2.0]}])
    assert drawn.size == (320, 160)
    assert np.asarray(drawn).any()
    assert draw_boxes(Image.new("RGB", (10, 5)), []).size == (320, 160)


def test_a_name_at_the_edge_is_inside_the_image() -> None:
    def field(box: list[float]) -> tuple[int, int]:
        """Return the size of the name's background, without the thin lines of the box."""
        drawn = np.asarray(draw_boxes(Image.new("RGB", (400, 300)), [{"label": "cat", "score": 0.9, "box": box}]))
        lit = (drawn[:, :, 0] > 0) | (drawn[:, :, 1] > 0)
        return int((lit.sum(axis=1) > 20).sum()), int((lit.sum(axis=0) > 9).sum())

    middle = field([100.0, 100.0, 101.0, 101.0])
    assert middle[0] > 9
    assert middle[1] > 40
    for box in ([399.0, 150.0, 400.0, 151.0], [200.0, 299.0, 201.0, 300.0], [399.0, 299.0, 400.0, 300.0]):
        assert field(box) == middle


def test_colours_of_classes() -> None:
    def edge(label: str) -> tuple[int, ...]:
        image = draw_boxes(Image.new("RGB", (400, 300)), [{"label": label, "score": 0.5, "box": [10, 10, 300, 200]}])
        return image.getpixel((10, 150))

    assert edge("cat") == edge("cat") != edge("dog")
