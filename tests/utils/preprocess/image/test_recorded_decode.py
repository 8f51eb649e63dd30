"""A recorded run decodes files from memory, with the same pixels and the same errors."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageOps, PngImagePlugin

from engine import DataError, Timeline, recording
from utils.preprocess.image.images import open_image
from utils.preprocess.pytorch.classification import preprocess

PIXELS = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpg": ("RGB", {}),
    "progressive.jpg": ("RGB", {"progressive": True}),
    "grey.jpg": ("L", {}),
    "cmyk.jpg": ("CMYK", {}),
    "png": ("RGB", {}),
    "palette.png": ("P", {"transparency": 3}),
    "gif": ("P", {}),
    "bmp": ("RGB", {}),
    "grey.bmp": ("L", {}),
    "ppm": ("RGB", {}),
    "pgm": ("L", {}),
    "tif": ("RGB", {}),
    "grey.tif": ("L", {}),
    "lzw.tif": ("RGB", {"compression": "tiff_lzw"}),
    "jpeg.tif": ("RGB", {"compression": "jpeg"}),
    "webp": ("RGB", {}),
}


def outcome(path: Path) -> np.ndarray | str:
    try:
        return np.asarray(open_image(path))
    except DataError as error:
        return str(error)


def assert_same(path: Path) -> np.ndarray | str:
    """Decode with and without a recording; return the common result."""
    plain = outcome(path)
    with recording(Timeline()):
        recorded = outcome(path)
    np.testing.assert_array_equal(plain, recorded)
    return plain


@pytest.fixture(params=FORMATS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    mode, options = FORMATS[request.param]
    path = tmp_path / f"image.{request.param}"
    Image.fromarray(PIXELS).convert(mode).save(path, **options)
    return path


@pytest.mark.parametrize("orientation", [1, 6])
def test_whole_files(stored: Path, orientation: int) -> None:
    if orientation != 1:
        with Image.open(stored) as image:
            if image.format not in ("JPEG", "PNG", "TIFF", "WEBP"):
                pytest.skip("no EXIF in this format")
            exif = Image.Exif()
            exif[0x0112] = orientation
            image.load()
            image.save(stored, image.format, exif=exif)
    assert isinstance(assert_same(stored), np.ndarray)


def test_truncated_files(stored: Path) -> None:
    whole = stored.read_bytes()
    for keep in (0, 1, 10, 30, 100, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        stored.write_bytes(whole[:keep])
        found = assert_same(stored)
        if isinstance(found, str):
            assert found.startswith(str(stored))
            assert "BytesIO" not in found


@settings(max_examples=60, deadline=None)
@given(
    st.binary(min_size=1, max_size=32),
    st.integers(0, 400),
    st.sampled_from(["jpeg", "png", "gif", "tiff", "bmp", "webp"]),
)
def test_damaged_files(damage: bytes, at: int, kind: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS[:12, :12]).save(buffer, kind)
    whole = buffer.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"d.{kind}"
        path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
        assert_same(path)


def test_missing_files(tmp_path: Path) -> None:
    assert "no such image" in assert_same(tmp_path / "no.png")
    assert "it is a folder" in assert_same(tmp_path)
    (tmp_path / "a.png").write_text("no image")
    assert "is not an image" in assert_same(tmp_path / "a.png")


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.png"
    Image.fromarray(PIXELS).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 64 - 1)
    assert "decompression bomb?" in assert_same(path)


def test_orientation_in_xmp_only(tmp_path: Path) -> None:
    """Without EXIF, Pillow may read the orientation from XMP (from a JPEG's only since some release)."""
    xmp = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", xmp)
    Image.fromarray(PIXELS).save(tmp_path / "x.png", pnginfo=info)
    Image.fromarray(PIXELS).save(tmp_path / "x.jpg", xmp=xmp.encode())
    for suffix in ("png", "jpg"):
        found = assert_same(tmp_path / f"x.{suffix}")
        with Image.open(tmp_path / f"x.{suffix}") as image:
            expected = ImageOps.exif_transpose(image)
        assert expected.size == (48, 64) or suffix == "jpg"
        np.testing.assert_array_equal(found, np.asarray(expected))


def test_the_stages_of_a_batch(tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for path in paths:
        Image.fromarray(PIXELS).save(path)
    timeline = Timeline()
    with recording(timeline):
        preprocess([*paths, Image.fromarray(PIXELS)], "float32", 8, 8)
    assert (timeline.count("disk"), timeline.count("decode")) == (3, 4)
    assert timeline.seconds("disk") > 0 < timeline.seconds("decode")
    before = timeline.count("decode")
    preprocess(paths, "float32", 8, 8)
    assert timeline.count("decode") == before
