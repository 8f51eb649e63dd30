"""A crop resized in two confined passes equals the crop of Pillow's whole resize bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from utils.preprocess.image import resizing
from utils.preprocess.image.resizing import resized_crop

SIZES = st.tuples(st.integers(1, 300), st.integers(1, 300))


def noise(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).convert(mode)


def whole(image: Image.Image, size: tuple[int, int], crop: tuple[int, int, int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.BILINEAR).crop(crop)


def is_in_two_passes(image: Image.Image, size: tuple[int, int], crop: tuple[int, int, int, int]) -> bool:
    axes = (resizing._Axis(image.size[i], size[i], crop[i], crop[i + 2]) for i in (0, 1))
    return resizing._is_worthwhile(*axes)


@settings(max_examples=400, deadline=None)
@given(old=SIZES, mode=st.sampled_from(["RGB", "L"]), data=st.data())
def test_any_crop_of_any_resize(old: tuple[int, int], mode: str, data: st.DataObject) -> None:
    """Lengths of dyadic, unchanged and other axes, shrunk and enlarged, in either order of the axes."""
    new, start, end = [], [], []
    for length in old:
        related = [length, 2 * length, max(1, length // 2), max(1, length * 3 // 4)]
        powers = st.sampled_from([1 << power for power in range(9)])
        resized = data.draw(st.one_of(powers, st.sampled_from(related), st.integers(1, 300)))
        new.append(resized)
        start.append(data.draw(st.integers(0, resized - 1)))
        end.append(data.draw(st.integers(start[-1] + 1, resized)))
    image, size, crop = noise(old, mode), (new[0], new[1]), (*start, *end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resizing, "_FEWEST_PIXELS", 0)
        assert resized_crop(image, size, crop) == whole(image, size, crop)


@settings(max_examples=200, deadline=None)
@given(old=SIZES, data=st.data())
def test_any_crop_by_every_filter(old: tuple[int, int], data: st.DataObject) -> None:
    new, start, end = [], [], []
    for length in old:
        powers = st.sampled_from([1 << power for power in range(9)])
        related = st.sampled_from([length, 2 * length, max(1, length // 2), max(1, length * 3 // 4)])
        resized = data.draw(st.one_of(powers, related, st.integers(1, 300)))
        new.append(resized)
        start.append(data.draw(st.integers(0, resized - 1)))
        end.append(data.draw(st.integers(start[-1] + 1, resized)))
    image, size, crop = noise(old), (new[0], new[1]), (*start, *end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resizing, "_FEWEST_PIXELS", 0)
        for resample in Image.Resampling:
            assert resized_crop(image, size, crop, resample) == image.resize(size, resample).crop(crop), resample


@pytest.mark.parametrize("resample", resizing.SUPPORTS)
@pytest.mark.parametrize("old", [(500, 375), (375, 500), (333, 500), (512, 512), (2048, 1536), (300, 1000), (90, 120)])
def test_supports_of_the_filters(
    old: tuple[int, int], resample: Image.Resampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual crop is exact; with half the support of a wide filter it would not be."""
    short = min(old)
    new = (old[0] * 256 // short, old[1] * 256 // short)
    left, top = (new[0] - 224) // 2, (new[1] - 224) // 2
    image, crop = noise(old), (left, top, left + 224, top + 224)
    wanted = image.resize(new, resample).crop(crop)
    assert is_in_two_passes(image, new, crop)
    assert resized_crop(image, new, crop, resample) == wanted
    if short > 256 and resizing.SUPPORTS[resample] >= 2:
        monkeypatch.setitem(resizing.SUPPORTS, resample, resizing.SUPPORTS[resample] / 2)
        assert resized_crop(image, new, crop, resample) != wanted


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((500, 375), (341, 256)),
        ((375, 500), (256, 341)),
        ((333, 500), (256, 384)),
        ((500, 333), (384, 256)),
        ((512, 512), (256, 256)),
        ((2048, 1536), (341, 256)),
        ((300, 1000), (256, 853)),  # from Pillow 13 on, vertical first
        ((256, 300), (256, 300)),  # nothing to resize
        ((256, 1100), (256, 300)),  # one axis, and it is not dyadic
        ((90, 120), (256, 341)),
        ((3, 4), (256, 341)),
        ((3, 900), (256, 341)),  # from Pillow 12 on, vertical first
        ((1, 1), (256, 256)),
    ],
)
def test_usual_sizes(old: tuple[int, int], new: tuple[int, int], mode: str) -> None:
    left, top = (new[0] - 224) // 2, (new[1] - 224) // 2
    image, crop = noise(old, mode), (left, top, left + 224, top + 224)
    assert is_in_two_passes(image, new, crop)
    assert resized_crop(image, new, crop) == whole(image, new, crop)


def test_exactly_one_known_order_matches_this_pillow() -> None:
    """If this fails, Pillow has a new rule for the order of its passes, and images are resized as a whole."""
    known = resizing._KNOWN_ORDERS
    assert [resizing._is_followed(order) for order in known].count(True) == 1
    assert resizing.order_of_passes() in known
    assert not resizing._is_followed(lambda old, new: True)
    assert not resizing._is_followed(lambda old, new: old[1] > new[1])


def test_the_order_matters() -> None:
    """Otherwise the tests above would not detect a wrong order."""
    image, size, crop = noise((300, 1000)), (256, 853), (16, 314, 240, 538)
    results = []
    for order in (lambda old, new: True, lambda old, new: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resizing, "order_of_passes", lambda order=order: order)
            results.append(resized_crop(image, size, crop))
    assert (results[0] == whole(image, size, crop)) != (results[1] == whole(image, size, crop))


def test_an_unknown_order_uses_the_whole_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resizing, "order_of_passes", lambda: None)
    image, size, crop = noise((500, 375)), (341, 256), (58, 16, 282, 240)
    assert resized_crop(image, size, crop) == whole(image, size, crop)


def test_no_bomb_warning_for_a_size_that_pillow_resizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow checks the size of a crop, not of a resize; a warning is an error here."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    image, size, crop = noise((200, 160)), (128, 102), (2, 3, 20, 20)
    assert resized_crop(image, size, crop) == whole(image, size, crop)
