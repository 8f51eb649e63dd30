"""Ranges of frames, and frames as samples of a task, with a source that is registered by a row of the table."""

from __future__ import annotations

import sys
import types
from argparse import ArgumentTypeError
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from PIL import Image

from engine import DataError
from utils.datasets.base import Dataset, ListDataset
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.dense_maps import load_maps
from utils.datasets.image.frames import FrameDataset, frame_range
from utils.datasets.image.instances import load_instances
from utils.datasets.image.masks import load_masks
from utils.datasets.image.pages import load_pages
from utils.datasets.image.restored import load_restored
from utils.datasets.image.text_lines import load_text_lines
from utils.datasets.loading import load_dataset
from utils.preprocess.image.images import open_image
from utils.video import sources
from utils.video.names import FramePath, is_frame
from utils.video.reader import FrameReader

parts = st.none() | st.integers(0, 30)


@given(start=parts, stop=parts, step=st.none() | st.integers(1, 9), length=st.integers(0, 40))
def test_ranges_are_slices(start: int | None, stop: int | None, step: int | None, length: int) -> None:
    text = ":".join("" if one is None else str(one) for one in (start, stop, step))
    assert range(length)[frame_range(text)] == range(length)[slice(start, stop, step)]
    if step is None:
        assert frame_range(text[:-1]) == slice(start, stop)


def test_one_frame_and_wrong_ranges() -> None:
    assert frame_range("12") == slice(12, 13)
    for text in ("", "-1", "::0", "1:2:3:4", "a", "1.5", "9" * 12):
        with pytest.raises(ArgumentTypeError, match="must be a number, or START:STOP:STEP"):
            frame_range(text)


class Shades(FrameReader):
    """Frames of one colour each, from memory."""

    size, rate = (8, 6), Fraction(5)

    def __len__(self) -> int:
        return 10

    def decoded(self) -> tuple[int, Any] | None:
        return (self._next, self._next) if self._next < 10 else None

    def seek(self, number: int) -> int:
        return number

    def converted(self, frame: Any) -> Image.Image:
        return Image.new("RGB", self.size, (frame, 0, 0))

    def ticks(self, number: int) -> int:
        return number


@pytest.fixture
def shades(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a source of a new kind: a module with one function, and a row of the table."""
    module = types.ModuleType("shades_of_red")
    module.open_frames = Shades  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shades_of_red", module)
    row = sources.Source("shades", r"shades:\w+", "shades_of_red")
    monkeypatch.setattr(sources, "SOURCES", [*sources.SOURCES, row])
    return Path("shades:red")


def test_a_new_kind_of_source_is_a_module_and_a_row(shades: Path) -> None:
    found = FrameDataset.of(shades, _loaded, slice(2, None, 3))
    assert len(found) == 3
    batch = found.batch(range(3))
    assert batch.names == ["shades:red#000002", "shades:red#000005", "shades:red#000008"]
    assert batch.targets is None
    assert [open_image(path).getpixel((0, 0)) for path in batch.samples] == [(2, 0, 0), (5, 0, 0), (8, 0, 0)]
    assert [found.number_of(name) for name in batch.names] == [2, 5, 8]
    assert len(FrameDataset.of(shades, _loaded, slice(None), first=4)) == 4
    assert found.fingerprint() != FrameDataset.of(shades, _loaded, slice(None)).fingerprint()
    with pytest.raises(DataError, match=r"shades:red has the frames 0 to 9, none of which is selected"):
        FrameDataset.of(shades, _loaded, slice(50, None))


def _loaded(path: Path) -> Dataset:
    return load_dataset(path)


@pytest.mark.parametrize(
    "load",
    [
        lambda path: load_dataset(path),
        lambda path: load_boxes(path),
        lambda path: load_instances(path),
        lambda path: load_masks({"data": path}),
        lambda path: load_maps({"data": path}, 1),
        lambda path: load_restored({"data": path}, None),
        lambda path: load_text_lines({"data": path}),
        lambda path: load_pages({"data": path}),
    ],
    ids=["classes", "boxes", "instances", "masks", "maps", "restored", "lines", "pages"],
)
def test_every_loader_of_images_takes_a_frame(load: Any) -> None:
    """Nothing is opened: the path of a frame is the path of an image."""
    found: ListDataset = load(FramePath.of(Path("some/clip.mp4"), 3))
    (name,) = found.batch(range(1)).names
    assert name == "some/clip.mp4#000003"


def test_names_that_are_not_frames() -> None:
    names = ["a.png", "a.png#000001", "clip.mp4", "clip.mp4#1", "clip.mp4#", "#000001", "a.jpg#0"]
    assert not [name for name in names if is_frame(name)]
    assert [name for name in ("a.b.MP4#000001", "camera:0#1234567", "x/clip.mkv#000000") if not is_frame(name)] == []
