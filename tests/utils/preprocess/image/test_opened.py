"""Supported formats and sizes of image files; no program is started."""

from __future__ import annotations

import os
import random
import resource
import struct
from pathlib import Path

import pytest
from PIL import Image

from engine import DataError, ImageError
from tests.fuzz.makers import odd_images
from utils.datasets.image.mask_codes import INDEX, read_mask
from utils.draw import save_drawn
from utils.preprocess.image.images import LONGEST_SIDE, PLUGINS, open_image, opened, upright_size


def stored(folder: Path, content: bytes, name: str = "p.png") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        open_image(path)
    with pytest.raises(ImageError):
        opened(path, path)
    return str(caught.value)


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program ``gs`` first on PATH; return the file that it creates when it is started."""
    mark, program = tmp_path / "started", tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # reset Pillow's cache
    return mark


def test_an_eps_does_not_start_ghostscript(tmp_path: Path, ghostscript: Path) -> None:
    path = stored(tmp_path, odd_images.EPS)
    assert "is not an image in a supported format (JPEG, PNG," in refused(path)
    with pytest.raises(DataError, match="supported format"):
        read_mask(path, INDEX, 255, (28, 28))
    (tmp_path / "out").mkdir()
    drawing = stored(tmp_path / "out", odd_images.EPS, "good.png")  # the name of a drawn image
    good = stored(tmp_path, odd_images.saved("L", "PNG"), "good.png")
    assert save_drawn(good, ["x"], tmp_path / "out") != drawing
    assert not ghostscript.exists()


@pytest.mark.filterwarnings("ignore:IM image format is deprecated")
@pytest.mark.parametrize("kind", sorted(odd_images._OTHERS))
def test_unsupported_formats(tmp_path: Path, kind: str) -> None:
    refused(stored(tmp_path, odd_images._OTHERS[kind]()))


@pytest.mark.parametrize("form", PLUGINS)
@pytest.mark.parametrize("name", ["right", "p.png", "p.tif", "p", "p.eps"])
def test_supported_formats_with_any_name(tmp_path: Path, form: str, name: str) -> None:
    path = stored(tmp_path, odd_images.saved("RGB", form), f"p.{form.lower()}" if name == "right" else name)
    assert open_image(path).size == upright_size(path) == (28, 28)


@pytest.mark.parametrize("size", [(1, 80_000_000), (80_000_000, 1), (1, LONGEST_SIDE + 1)])
def test_long_sides_are_refused_before_decoding(tmp_path: Path, size: tuple[int, int]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = stored(tmp_path, odd_images.png(size))
    assert f"{size[0]}x{size[1]} exceeds the limit of 65535 pixels for a side" in refused(path)
    with pytest.raises(ImageError):
        upright_size(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_the_longest_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (LONGEST_SIDE, 1)).save(tmp_path / "p.png")
    assert open_image(tmp_path / "p.png").width == LONGEST_SIDE
    Image.new("1", (LONGEST_SIDE + 1, 1)).save(tmp_path / "p.png")
    refused(tmp_path / "p.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert open_image(tmp_path / "p.png").width == LONGEST_SIDE + 1


@pytest.mark.filterwarnings("default::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("what", ["a tile of 900 megapixels", "many scans", "a text of 100 MB"])
def test_bombs(tmp_path: Path, what: str) -> None:
    content, ending = odd_images._HEADERS[what](random.Random(1))
    refused(stored(tmp_path, content, f"p{ending}"))


def test_a_jpeg_of_65500_pixels_squared_by_its_header(tmp_path: Path) -> None:
    content = bytearray(odd_images.saved("RGB", "JPEG"))
    place = content.find(b"\xff\xc0")
    content[place + 5 : place + 9] = struct.pack(">HH", 65_500, 65_500)
    assert "decompression bomb?" in refused(stored(tmp_path, bytes(content), "p.jpg"))


def test_scans_of_a_usual_progressive_jpeg(tmp_path: Path) -> None:
    path = stored(tmp_path, odd_images.saved("RGB", "JPEG", (200, 300), progressive=True), "p.jpg")
    assert open_image(path).size == (200, 300)
    with opened(path, path) as image:
        assert image.info["progressive"]


def test_pipes_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.png")
    assert "it is a pipe" in refused(tmp_path / "p.png")
    with pytest.raises(DataError, match="it is a pipe"):
        read_mask(tmp_path / "p.png", INDEX, 255, (28, 28))
