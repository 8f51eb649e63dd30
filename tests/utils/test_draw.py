"""The drawn answer: legible on any image, written whole, never over another's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.draw import draw_answer, save_drawn


def ink(image: Image.Image) -> int:
    """Count the pixels that are nearly white."""
    return int((np.asarray(image).min(axis=2) > 200).sum())


@pytest.mark.parametrize("size", [(8, 8), (1, 1), (640, 480), (200, 300), (3, 400), (400, 3), (2000, 100)])
def test_the_image_is_unchanged_above_the_band(size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, (200, 30, 40))
    drawn = draw_answer(image, ["tench, Tinca tinca", "0.9731"])
    assert drawn.mode == "RGB"
    assert drawn.width >= 256
    factor = max(1, 256 // max(size))
    assert (np.asarray(drawn) == (200, 30, 40)).all(axis=2).sum() == size[0] * size[1] * factor**2
    assert drawn.height > size[1] * factor
    assert ink(drawn) > 200
    assert image.size == size


def test_text_is_drawn_inside_the_band() -> None:
    drawn = draw_answer(Image.new("L", (256, 256)), ["word " * 60, "x" * 500, "tabs\tand\nlines"])
    border = np.asarray(drawn)[256:].min(axis=2) > 100
    assert not border[:, :4].any()
    assert not border[:, -4:].any()
    assert not border[-4:].any()


def test_more_lines_need_more_band() -> None:
    image = Image.new("RGB", (256, 256))
    heights = [draw_answer(image, ["label 0.5"] * count).height for count in range(4)]
    assert heights == sorted(set(heights))


@pytest.mark.parametrize("text", ["鲤鱼 0.98", "Ünïcödé", "карп", "\u202eabc", "a\0b", "🐟", ""])
def test_any_text_can_be_drawn(text: str) -> None:
    draw_answer(Image.new("RGB", (64, 64)), [text])


def test_saved_as_png(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (9, 99, 199)).save(tmp_path / "seven.bmp")
    written = save_drawn(tmp_path / "seven.bmp", ["7", "0.99"], tmp_path / "new" / "out")
    assert written == tmp_path / "new" / "out" / "seven.png"
    with Image.open(written) as image:
        assert image.format == "PNG"
        expected = draw_answer(Image.new("RGB", (8, 8), (9, 99, 199)), ["7", "0.99"])
        np.testing.assert_array_equal(np.asarray(image), np.asarray(expected))
    assert [path.name for path in written.parent.iterdir()] == ["seven.png"]


def test_same_stem_does_not_overwrite_and_same_input_does(tmp_path: Path) -> None:
    sources = [tmp_path / folder / "0.png" for folder in "abc"]
    for shade, source in enumerate(sources):
        source.parent.mkdir()
        Image.new("L", (300, 300), shade * 50).save(source)
    first = [save_drawn(source, ["x"], tmp_path / "out") for source in sources]
    again = [save_drawn(source, ["x", "y"], tmp_path / "out") for source in sources]
    assert first == again
    assert len(set(first)) == 3
    assert first[0].name == "0.png"
    for shade, path in enumerate(first):
        with Image.open(path) as image:
            assert image.getpixel((5, 5)) == (shade * 50,) * 3


def test_files_that_were_not_drawn_are_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "cat.png"
    Image.new("RGB", (30, 30)).save(source)
    before = source.read_bytes()
    assert save_drawn(source, ["cat"], tmp_path) != source  # --save into the folder of the images
    assert source.read_bytes() == before
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cat.png").write_text("mine")
    assert save_drawn(source, ["cat"], tmp_path / "out").name != "cat.png"
    assert (tmp_path / "out" / "cat.png").read_text() == "mine"


def test_same_stem_from_several_threads(tmp_path: Path) -> None:
    sources = [tmp_path / str(number) / "0.png" for number in range(12)]
    for source in sources:
        source.parent.mkdir()
        Image.new("RGB", (8, 8)).save(source)
    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(lambda source: save_drawn(source, ["x"], tmp_path / "out"), sources))
    assert len(set(written)) == 12
    assert all(path.stat().st_size for path in written)


def test_unreadable_images_and_unwritable_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such image"):
        save_drawn(tmp_path / "no.png", ["x"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match="choose another folder"):
        save_drawn(tmp_path / "a.png", ["x"], tmp_path / "a.png")


def test_drawing_on_a_drawn_image(tmp_path: Path) -> None:
    Image.new("RGB", (300, 300)).save(tmp_path / "a.png")
    saved = save_drawn(tmp_path / "a.png", ["x"], tmp_path / "out", Image.new("RGB", (300, 300), (255, 0, 0)))
    assert saved == tmp_path / "out" / "a.png"
    assert Image.open(saved).getpixel((5, 5)) == (255, 0, 0)
    again = save_drawn(tmp_path / "a.png", ["x"], tmp_path / "out")
    assert again == saved
    assert Image.open(saved).getpixel((5, 5)) == (0, 0, 0)


@pytest.mark.parametrize("stem", ["a" * 251, "\u65e5" * 83, "a\nb", "\udcff", "..a", "x\u202ey"])
def test_long_names_are_truncated(tmp_path: Path, stem: str) -> None:
    ending = ".pgm"
    images = [tmp_path / below / f"{stem}{ending}" for below in ("one", "two")]
    for image in images:
        image.parent.mkdir()
        Image.new("L", (8, 8)).save(image)
    written = [save_drawn(image, ["x"], tmp_path / "out") for image in images]
    assert sorted(written) == sorted((tmp_path / "out").iterdir())  # two, and nothing elsewhere
    assert save_drawn(images[1], ["x"], tmp_path / "out") == written[1]


def test_the_band_of_a_wide_image() -> None:
    drawn = draw_answer(Image.new("L", (65_535, 1)), ["digit 7, 0.9731"])
    assert drawn.height < 1000
