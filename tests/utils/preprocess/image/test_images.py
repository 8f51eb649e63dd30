"""Images of every kind become upright, RGB and 8-bit, or raise one clear error."""

from __future__ import annotations

import copy
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image, ImageFile, ImageOps

from engine import DataError, ImageError
from utils.preprocess.image.images import open_image, to_rgb

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
COLOUR = np.stack([RAMP, RAMP[::-1], RAMP.T], axis=2)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


def grey(image: Image.Image) -> np.ndarray:
    """Return one of an image's three planes, which must be equal."""
    array = np.asarray(image)
    assert (array[:, :, 0] == array[:, :, 1]).all()
    assert (array[:, :, 0] == array[:, :, 2]).all()
    return array[:, :, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_exif_orientation_is_applied_once(tmp_path: Path, orientation: int, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(COLOUR[:12])
    path = saved(stored, tmp_path / f"o.{suffix}", exif=exif, **({"lossless": True} if suffix == "webp" else {}))
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    opened = open_image(path)
    assert opened.mode == "RGB"
    assert opened.size == ((16, 12) if orientation < 5 else (12, 16))
    np.testing.assert_array_equal(np.asarray(opened), expected)
    np.testing.assert_array_equal(np.asarray(to_rgb(opened)), expected)  # not a second time
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.asarray(to_rgb(image)), expected)  # a path and an opened file agree


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["L", "RGBA", "I;16"])
def test_an_uncompressed_tiff_of_any_mode_is_upright(tmp_path: Path, mode: str, orientation: int) -> None:
    """Pillow maps some of them to memory, with wrong rows if they are rotated."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    wide = Image.fromarray(RAMP[:12].astype(np.uint16) * 257)
    stored = wide if mode == "I;16" else Image.fromarray(COLOUR[:12]).convert(mode)
    path = saved(stored, tmp_path / "t.tif", exif=exif)
    stored.info["exif"] = exif.tobytes()
    np.testing.assert_array_equal(np.asarray(open_image(path)), np.asarray(to_rgb(stored)))


@pytest.mark.parametrize("transparency", [None, 3, bytes(range(256))])
def test_palette(tmp_path: Path, transparency: int | bytes | None) -> None:
    image = Image.fromarray(RAMP).convert("P")
    image.putpalette([value for index in range(256) for value in (255 - index, index, 7)])
    options = {} if transparency is None else {"transparency": transparency}
    opened = np.asarray(open_image(saved(image, tmp_path / "p.png", **options)))
    np.testing.assert_array_equal(opened, np.stack([255 - RAMP, RAMP, np.full_like(RAMP, 7)], axis=2))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "RGBa", "La", "RGBX"])
def test_alpha_is_dropped(mode: str) -> None:
    image = Image.fromarray(COLOUR).convert("RGBA")
    image.putalpha(255)
    converted = image.convert("L").convert("LA") if mode in ("LA", "La") else image
    source = converted.convert(mode)
    expected = source.convert({"La": "LA", "RGBa": "RGBA"}.get(mode, mode)).convert("RGB")
    np.testing.assert_array_equal(np.asarray(to_rgb(source)), np.asarray(expected))
    if mode == "RGBA":
        source.putalpha(0)  # transparent, but the colours are kept
        np.testing.assert_array_equal(np.asarray(to_rgb(source)), COLOUR)


def test_grey_and_bilevel(tmp_path: Path) -> None:
    np.testing.assert_array_equal(grey(open_image(saved(Image.fromarray(RAMP), tmp_path / "l.png"))), RAMP)
    bilevel = Image.fromarray(RAMP > 99)
    assert bilevel.mode == "1"
    np.testing.assert_array_equal(grey(open_image(saved(bilevel, tmp_path / "1.png"))), np.where(RAMP > 99, 255, 0))


def test_grey_with_a_transparent_colour(tmp_path: Path) -> None:
    np.testing.assert_array_equal(
        grey(open_image(saved(Image.fromarray(RAMP), tmp_path / "l.png", transparency=5))), RAMP
    )


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "LAB", "HSV"])
def test_other_colour_spaces_are_converted_as_pillow_does(mode: str) -> None:
    image = Image.new(mode, (4, 4), (10, 120, 200, 30)[: len(Image.new(mode, (1, 1)).getbands())])
    np.testing.assert_array_equal(np.asarray(to_rgb(image)), np.asarray(image.convert("RGB")))


def test_cmyk_jpeg_has_the_right_colours(tmp_path: Path) -> None:
    # Pillow writes CMYK JPEGs the Adobe way, inverted and with an Adobe marker.
    path = saved(Image.new("RGB", (16, 16), (200, 40, 90)).convert("CMYK"), tmp_path / "c.jpg", quality=100)
    assert b"Adobe" in path.read_bytes()
    assert np.abs(np.asarray(open_image(path)).astype(int) - (200, 40, 90)).max() <= 2


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_16_bit_grey_is_scaled(tmp_path: Path, suffix: str) -> None:
    wide = RAMP.astype(np.uint16) * 257
    path = saved(Image.fromarray(wide), tmp_path / f"w.{suffix}")
    np.testing.assert_array_equal(grey(open_image(path)), RAMP)


@pytest.mark.parametrize("order", ["<u2", ">u2"])
def test_16_bit_is_rounded_to_nearest_in_either_byte_order(order: str) -> None:
    values = np.arange(65536).reshape(256, 256)
    image = Image.fromarray(values.astype(order))
    assert image.mode == ("I;16" if order == "<u2" else "I;16B")
    np.testing.assert_array_equal(grey(to_rgb(image)), np.rint(values * (255 / 65535)))


@pytest.mark.parametrize(
    ("dtype", "white"), [("int32", 255), ("int32", 65535), ("float32", 1), ("float32", 255), ("float32", 65535)]
)
def test_white_of_int_and_float_images(dtype: str, white: int) -> None:
    image = Image.fromarray((RAMP.astype(np.float64) * (white / 255)).astype(dtype))
    assert image.mode in ("I", "F")
    assert np.abs(grey(to_rgb(image)).astype(int) - RAMP).max() == 0


def test_16_bit_is_upright_too() -> None:
    image = Image.fromarray(RAMP.astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.info["exif"] = exif.tobytes()
    np.testing.assert_array_equal(grey(to_rgb(image)), np.rot90(RAMP, -1))


@given(st.lists(st.floats(width=32), min_size=1, max_size=6))
def test_any_float_samples(samples: list[float]) -> None:
    plane = grey(to_rgb(Image.fromarray(np.array([samples], np.float32))))[0]
    for sample, value in zip(samples, plane, strict=True):
        if np.isnan(sample) or sample <= 0:
            assert value == 0
        if sample == np.inf:
            assert value == 255


def test_rgb_is_not_copied() -> None:
    image = Image.fromarray(COLOUR)
    assert to_rgb(image) is image


def test_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.fromarray(COLOUR).quantize(255), Image.new("P", (16, 16))]
    path = saved(frames[0], tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(np.asarray(open_image(path)), np.asarray(frames[0].convert("RGB")))


def refused(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        open_image(path)
    text = str(caught.value)
    assert str(path) in text
    assert "\n" not in text
    return text


def test_missing_and_folder(tmp_path: Path) -> None:
    assert "no such image" in refused(tmp_path / "no.png")
    assert "it is a folder" in refused(tmp_path)


def test_not_an_image(tmp_path: Path) -> None:
    for name in ("notes.txt", "notes.png"):
        (tmp_path / name).write_text("a text file among the images")
        assert "is not an image" in refused(tmp_path / name)
    (tmp_path / "empty.jpg").touch()
    assert "is empty" in refused(tmp_path / "empty.jpg")


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "tif", "bmp", "webp"])
def test_truncated(tmp_path: Path, suffix: str) -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = saved(Image.fromarray(noise), tmp_path / f"w.{suffix}").read_bytes()
    for keep in (len(whole) // 2, 40, 10):
        path = tmp_path / f"t.{suffix}"
        path.write_bytes(whole[:keep])
        refused(path)


@given(st.binary(max_size=64), st.integers(0, 200), st.sampled_from(["jpg", "png", "gif", "tif", "webp"]))
def test_damage_anywhere_is_one_error_or_an_image(damage: bytes, at: int, suffix: str) -> None:
    import io
    import tempfile

    buffer = io.BytesIO()
    Image.fromarray(COLOUR).save(buffer, format={"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix))
    whole = buffer.getvalue()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"d.{suffix}"
        path.write_bytes(whole[:at] + damage + whole[at + len(damage) :])
        try:
            assert open_image(path).mode == "RGB"
        except DataError as error:
            assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


def png_of(width: int, height: int) -> bytes:
    """Return a PNG with a declared size and almost no data: a decompression bomb's header."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 100_000])  # Pillow warns at the first size and raises at the second
@pytest.mark.filterwarnings("default::PIL.Image.DecompressionBombWarning")
def test_decompression_bomb(tmp_path: Path, side: int, recwarn: pytest.WarningsRecorder) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of(side, side))
    assert "decompression bomb?" in refused(path)


def test_decompression_bomb_with_warnings_as_errors(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of(10_000, 10_000))
    assert "decompression bomb?" in refused(path)


def test_the_limit_equals_that_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(Image.fromarray(COLOUR), tmp_path / "c.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 255)
    refused(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 256)
    assert open_image(path).size == (16, 16)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert open_image(path).size == (16, 16)


def test_no_pixels() -> None:
    with pytest.raises(DataError, match="0x3 has no pixels"):
        to_rgb(Image.new("RGB", (0, 3)))


def test_damaged_file_opened_by_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "t.png"
    whole = saved(Image.fromarray(COLOUR), tmp_path / "w.png").read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with Image.open(path) as image, pytest.raises(DataError, match="image 3: truncated or damaged"):
        to_rgb(image, "image 3")


def test_from_several_threads(tmp_path: Path) -> None:
    good = [saved(Image.fromarray(COLOUR), tmp_path / f"g.{suffix}") for suffix in ("png", "bmp", "tif", "ppm")]
    bad, bomb = tmp_path / "bad.png", tmp_path / "bomb.png"
    bad.write_text("no")
    bomb.write_bytes(png_of(10_000, 10_000))

    def attempt(path: Path) -> str | np.ndarray:
        try:
            return np.asarray(open_image(path))
        except DataError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(attempt, good * 20):
            np.testing.assert_array_equal(result, COLOUR)
        assert {type(result) for result in pool.map(attempt, [bad, bomb] * 20)} == {str}


def test_unreadable_images_are_also_oserrors(tmp_path: Path) -> None:
    """Existing scripts continue with the next image after ``except IOError``."""
    (tmp_path / "a.png").write_bytes(b"no image")
    for path in (tmp_path / "a.png", tmp_path / "none.png", tmp_path):
        with pytest.raises(IOError, match=path.name) as found:
            open_image(path)
        assert isinstance(found.value, DataError)
        assert type(copy.copy(found.value)) is ImageError  # as for pickle
