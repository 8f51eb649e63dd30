"""Unusual images: unsupported formats, wrong sizes, and hostile headers."""

from __future__ import annotations

import functools
import io
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

from PIL import Image

Made = tuple[bytes, str]
"""Content of a file, and its suffix."""


def saved(mode: str, form: str, size: tuple[int, int] = (28, 28), **options: Any) -> bytes:
    """Return an image of a gradient in a format."""
    wide, tall = size
    levels = bytes((x * 7 + y * 3) % 256 for y in range(tall) for x in range(wide))
    image = Image.frombytes("L", size, levels)
    image = image.point(lambda v: v * 257, "I").convert(mode) if mode.startswith("I") else image.convert(mode)
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def chunk(kind: bytes, data: bytes, length: int | None = None) -> bytes:
    """Return a chunk of a PNG; ``length``: declared instead of the real one."""
    said = len(data) if length is None else length
    return struct.pack(">I", said) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    size: tuple[int, int], *, depth: int = 8, colour: int = 0, rows: bytes | None = None, extra: bytes = b""
) -> bytes:
    """Return a PNG with the given header."""
    head = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    data = bytes(29 * 28) if rows is None else rows
    body = chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@functools.cache
def _zeros(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes << 20), 1)


def tiff(tags: dict[int, tuple[int, Any]], data: bytes, order: str = "<") -> bytes:
    """Return a TIFF: tags by number with type (3: 16 bits, 4: 32 bits) and value, followed by its strip or tile."""
    entries = b""
    start = 8 + 2 + 12 * len(tags) + 4
    for number in sorted(tags):
        kind, value = tags[number]
        value = start if value == "data" else len(data) if value == "size" else value
        entries += struct.pack(f"{order}HHII", number, kind, 1, value)
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(f"{order}IH", 8, len(tags)) + entries + struct.pack(f"{order}I", 0) + data


def _plain_tags(size: tuple[int, int] = (28, 28)) -> dict[int, tuple[int, Any]]:
    return {
        256: (4, size[0]),
        257: (4, size[1]),
        258: (3, 8),
        259: (3, 1),
        262: (3, 1),
        273: (4, "data"),
        277: (3, 1),
        278: (4, size[1]),
        279: (4, "size"),
    }


def _tiled_bomb(_: random.Random) -> Made:
    tags = _plain_tags() | {259: (3, 8), 322: (4, 30000), 323: (4, 30000), 324: (4, "data"), 325: (4, "size")}
    for number in (273, 278, 279):
        del tags[number]
    return tiff(tags, _zeros(100)), ".tif"


def _many_tags(_: random.Random) -> Made:
    tags = _plain_tags() | dict.fromkeys(range(50800, 65000), (1, 0))
    return tiff(tags, bytes(28 * 28)), ".tif"


def _odd_tags(rng: random.Random) -> Made:
    tags = _plain_tags()
    for number in rng.sample(sorted(tags), rng.randint(1, 3)):
        tags[number] = (
            rng.choice((1, 2, 3, 4, 5, 7, 9, 11, 12, 13, 99)),
            rng.choice((0, 1, 7, 65535, 1 << 31, 2**32 - 1)),
        )
    return tiff(tags, bytes(28 * 28), rng.choice("<>")), ".tif"


def _tiff_compressed(rng: random.Random) -> Made:
    how = rng.choice(("tiff_lzw", "jpeg", "packbits", "tiff_adobe_deflate", "zstd", "lzma", "group4", "tiff_ccitt"))
    mode = "1" if how in ("group4", "tiff_ccitt") else rng.choice(("L", "RGB"))
    return saved(mode, "TIFF", compression=how), ".tif"


def _exif(rng: random.Random) -> Made:
    exif = Image.Exif()
    exif[0x0112] = rng.choice((0, 1, 3, 6, 8, 9, 255, 65535))
    if rng.random() < 0.5:
        exif[0x010E] = "x" * rng.choice((10, 60_000))
    form, ending = rng.choice((("JPEG", ".jpg"), ("PNG", ".png"), ("WEBP", ".webp"), ("TIFF", ".tif")))
    content = bytearray(saved("RGB", form, exif=exif))
    place = content.find(b"\x12\x01\x03\x00")
    if place > 0 and rng.random() < 0.6:  # the tag's type, count and value
        content[place + 2 : place + 12] = rng.randbytes(10)
    return bytes(content), ending


def _raw_exif(rng: random.Random) -> Made:
    text = b"Raw profile type exif\0\0" + zlib.compress(
        b"\nexif\n 20\n" + rng.choice((b"zz" * 50, b"45786966" * 9, b"4"))
    )
    return png((28, 28), extra=chunk(b"zTXt", text)), ".png"


def _xmp(rng: random.Random) -> Made:
    text = b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="' + rng.choice((b"6", b"9", b"0", b"x")) + b'"/>'
    return png((28, 28), extra=chunk(b"iTXt", text)), ".png"


def _text_bomb(rng: random.Random) -> Made:
    kind, head = rng.choice(((b"zTXt", b"a\0\0"), (b"iTXt", b"a\0\1\0\0\0"), (b"iCCP", b"icc\0\0")))
    return png((28, 28), extra=chunk(kind, head + _zeros(100))), ".png"


def _many_texts(_: random.Random) -> Made:
    one = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20)))
    return png((28, 28), extra=one * 200), ".png"


def _icc(rng: random.Random) -> Made:
    profile = rng.choice((b"", b"x", rng.randbytes(3000), b"\0" * 128))
    form, ending = rng.choice((("JPEG", ".jpg"), ("PNG", ".png"), ("WEBP", ".webp"), ("TIFF", ".tif")))
    return saved("RGB", form, icc_profile=profile), ending


def _strip(rng: random.Random) -> Made:
    size = rng.choice(((1, 80_000_000), (80_000_000, 1), (1, 65_535), (65_535, 1), (1, 3000), (3000, 1), (2, 40_000)))
    rows = bytes((size[0] + 1) * size[1]) if max(size) < 70_000 else bytes(1000)
    return png(size, rows=rows), ".png"


def _said_size(rng: random.Random) -> Made:
    sizes = (0, 1, 28, 9459, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1)
    return png(
        (rng.choice(sizes), rng.choice(sizes)), depth=rng.choice((1, 8, 16, 3)), colour=rng.choice((0, 2, 3, 4, 6, 5))
    ), ".png"


def _jpeg_header(rng: random.Random) -> Made:
    content = bytearray(saved("RGB", "JPEG", progressive=rng.random() < 0.5))
    place = max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
    sides = (0, 1, 27, 29, 9000, 65_500, 65_535)
    content[place + 5 : place + 9] = struct.pack(">HH", rng.choice(sides), rng.choice(sides))
    return bytes(content), ".jpg"


def _many_scans(rng: random.Random) -> Made:
    """A progressive JPEG of 8000 x 8000 pixels whose last scan is repeated thousands of times."""
    content = saved("L", "JPEG", (256, 256), progressive=True)
    start = content.rfind(b"\xff\xda")
    body = content[:start] + content[start:-2] * rng.choice((100, 3000)) + content[-2:]
    place = body.find(b"\xff\xc2")
    return body[: place + 5] + struct.pack(">HH", 8000, 8000) + body[place + 9 :], ".jpg"


def _gif_offsets(rng: random.Random) -> Made:
    content = bytearray(saved("P", "GIF"))
    place = content.find(b"\x2c")
    sides = (0, 1, 27, 28, 3000, 65_535)
    content[place + 1 : place + 9] = struct.pack("<4H", *(rng.choice(sides) for _ in range(4)))
    return bytes(content), ".gif"


def _animated(rng: random.Random) -> Made:
    frames = [Image.new("RGB", (28, 28), (n * 40, 0, 0)) for n in range(4)]
    form, ending = rng.choice((("GIF", ".gif"), ("WEBP", ".webp"), ("PNG", ".png"), ("TIFF", ".tif"), ("MPO", ".jpg")))
    out = io.BytesIO()
    frames[0].save(out, form, save_all=True, append_images=frames[1:])
    return out.getvalue(), ending


def _deep(rng: random.Random) -> Made:
    mode, form, ending = rng.choice(
        (("I;16", "PNG", ".png"), ("I;16", "TIFF", ".tif"), ("I", "TIFF", ".tif"), ("F", "TIFF", ".tif"))
    )
    return saved(mode, form), ending


def _palette(rng: random.Random) -> Made:
    transparency = rng.choice((0, 3, 255, bytes(range(256)), b"", b"\x00"))
    form, ending = rng.choice((("PNG", ".png"), ("GIF", ".gif")))
    return saved("P", form, transparency=transparency if form == "PNG" else 3), ending


def _cmyk(rng: random.Random) -> Made:
    return (saved("CMYK", "JPEG"), ".jpg") if rng.random() < 0.5 else (saved("CMYK", "TIFF"), ".tif")


def _interlaced(_: random.Random) -> Made:
    head = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 1)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(900))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body, ".png"


def _too_much(_: random.Random) -> Made:
    """A small PNG whose data goes on for 100 MB."""
    head = struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", _zeros(100)) + chunk(b"IEND", b""), ".png"


def _bmp(rng: random.Random) -> Made:
    content = bytearray(saved(rng.choice(("RGB", "L", "1")), "BMP"))
    field, kind = rng.choice(
        ((10, "<I"), (14, "<I"), (18, "<i"), (22, "<i"), (26, "<H"), (28, "<H"), (30, "<I"), (46, "<I"))
    )
    values = (0, 1, 2, 3, 4, 8, 16, 24, 32, 64, 65_535) if kind == "<H" else (0, 1, 3, 4, 40, 124, 65_536, 2**31 - 1)
    value = rng.choice(values) * (rng.choice((1, -1)) if kind == "<i" else 1)
    content[field : field + struct.calcsize(kind)] = struct.pack(kind, value)
    return bytes(content), ".bmp"


def _ppm(rng: random.Random) -> Made:
    mark = rng.choice((b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"P7", b"Pf", b"PF", b"Py"))
    numbers = (b"0", b"1", b"28", b"-1", b"1e3", b"9459", b"99999999999", b"\xb2", b"255", b"65535", b"65536", b"7")
    words = [rng.choice((b"28", rng.choice(numbers))) for _ in range(2)] + [rng.choice(numbers)]
    comment = rng.choice((b"", b"#" + b"x" * 100_000 + b"\n"))
    body = rng.choice((bytes(28 * 28 * 3), b"12 " * 2400, b"1" * 3000, b""))
    return mark + b"\n" + comment + b" ".join(words) + b"\n" + body, rng.choice((".ppm", ".pgm"))


def _webp_header(rng: random.Random) -> Made:
    """A WebP with the largest possible canvas."""
    side = rng.choice((16_382, 16_383)).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes([rng.choice((0, 2, 0x12))]) + b"\0\0\0" + side + side
    whole = saved("RGB", "WEBP")
    body += whole[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body, ".webp"


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 28 28
%%EndComments
(x) run
showpage
%%EOF
"""

_OTHERS: dict[str, Callable[[], bytes]] = {
    ".eps": lambda: EPS,
    ".pdf": lambda: saved("RGB", "PDF"),
    ".ico": lambda: saved("RGBA", "ICO"),
    ".icns": lambda: saved("RGBA", "ICNS", (32, 32)),
    ".jp2": lambda: saved("RGB", "JPEG2000"),
    ".tga": lambda: saved("RGB", "TGA"),
    ".avif": lambda: saved("RGB", "AVIF"),
    ".pcx": lambda: saved("RGB", "PCX"),
    ".im": lambda: saved("RGB", "IM"),
    ".sgi": lambda: saved("RGB", "SGI"),
    ".dds": lambda: saved("RGB", "DDS"),
    ".xbm": lambda: saved("1", "XBM"),
    ".psd": lambda: b"8BPS" + struct.pack(">H6xHIIHH", 1, 3, 28, 28, 8, 3) + bytes(12 + 2 + 28 * 28 * 3),
    ".fits": lambda: (
        b"SIMPLE  =                    T".ljust(80) + b"BITPIX  =                    8".ljust(80) + b"END".ljust(2720)
    ),
    ".wmf": lambda: b"\xd7\xcd\xc6\x9a\0\0" + bytes(50),
    ".emf": lambda: b"\1\0\0\0" + bytes(36) + b" EMF" + bytes(60),
    ".svg": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><image href="/etc/passwd"/></svg>',
    ".xpm": lambda: b'/* XPM */ static char *a[] = {"1 1 1 1", "a c #000000", "a"};',
}


def other(rng: random.Random) -> Made:
    """Return an image in an unsupported format with the suffix of a supported one."""
    kind = rng.choice(list(_OTHERS))
    return _OTHERS[kind](), rng.choice((".png", ".jpg", ".tif", ".bmp", ".ppm"))


_HEADERS: dict[str, Callable[[random.Random], Made]] = {
    "another format": other,
    "a tile of 900 megapixels": _tiled_bomb,
    "14 000 tags": _many_tags,
    "odd tags": _odd_tags,
    "a TIFF's compression": _tiff_compressed,
    "EXIF": _exif,
    "EXIF as text": _raw_exif,
    "XMP": _xmp,
    "a text of 100 MB": _text_bomb,
    "200 texts of 1 MB": _many_texts,
    "ICC": _icc,
    "a strip": _strip,
    "a size that is said": _said_size,
    "a JPEG's size that is said": _jpeg_header,
    "many scans": _many_scans,
    "a GIF's offsets": _gif_offsets,
    "several frames": _animated,
    "16 or 32 bits": _deep,
    "a palette": _palette,
    "CMYK": _cmyk,
    "interlaced": _interlaced,
    "too much data": _too_much,
    "a BMP's header": _bmp,
    "a PPM's header": _ppm,
    "a WebP's canvas": _webp_header,
    "one byte": lambda rng: (rng.randbytes(1), ".png"),
    "nothing": lambda rng: (b"", ".jpg"),
    "NULs": lambda rng: (bytes(5000), ".bmp"),
}


def odd_image(rng: random.Random) -> tuple[bytes, str, str]:
    """Return the content of an odd image, its suffix, and its description."""
    what = rng.choice(list(_HEADERS))
    content, ending = _HEADERS[what](rng)
    return content, ending, what
