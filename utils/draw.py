"""Draw answers: the image with labels and scores in a band below it."""

from __future__ import annotations

import hashlib
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple, TypeAlias

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from engine import ConfigError, DataError
from utils.preprocess.image.images import open_image, opened, to_rgb
from utils.video.names import stem_of

_MIN_SIDE = 256
"""Pixels below which an image is enlarged (longer side) or its canvas widened, so that text is legible."""
_LARGEST_LETTER = 256
"""Largest font size in pixels: an image of 65 535 pixels' width would get a band of gigabytes."""
_LONGEST_NAME = 255
"""Largest length of a file name in bytes."""
_BAND, _TEXT = (24, 24, 24), (255, 255, 255)
_SOURCE = "source-sha256"
"""PNG text chunk with the hash of the input's path."""

_MOST_ROWS = 2
"""Number of rows of text on a frame of a video."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

Receiver: TypeAlias = "Callable[[Image.Image, list[str]], None]"
"""Takes an image with its answer drawn on it, and the lines of text that belong to it."""


class _Drawing(NamedTuple):
    receiver: Receiver
    files: bool


_drawing: ContextVar[_Drawing | None] = ContextVar("drawing", default=None)


@contextmanager
def drawing_into(receiver: Receiver, *, files: bool) -> Iterator[None]:
    """Let :func:`save_drawn` pass its images to a function in the block, such as that of a video.

    ``files``: also write the files; else :func:`save_drawn` returns the path that the file would have.
    """
    token = _drawing.set(_Drawing(receiver, files))
    try:
        yield
    finally:
        _drawing.reset(token)


def answer_on_frame(drawn: Image.Image, lines: Sequence[str], size: tuple[int, int]) -> Image.Image:
    """Return an image with its answer at the size of the frame, with lines of text over its lower edge.

    An enlarged image is reduced to ``size``, width and height in pixels; one of other proportions, such as several
    images side by side, keeps its size. At most two rows of text are shown, and none on an image narrower than a few
    letters.
    """
    same = drawn.width * size[1] == drawn.height * size[0]
    canvas = to_rgb(drawn).copy() if drawn.size == size or not same else drawn.resize(size, Image.Resampling.LANCZOS)
    letters = min(max(12, canvas.width // 32), _LARGEST_LETTER)
    font, lines = _lettered(lines, letters)
    margin, step = letters // 2, letters * 5 // 4
    width = canvas.width - 2 * margin
    rows = [row for line in lines for row in _wrapped(line, font, width)][:_MOST_ROWS] if width > letters else []
    if not rows:
        return canvas
    top = max(0, canvas.height - len(rows) * step - margin)
    band = canvas.crop((0, top, *canvas.size))
    canvas.paste(Image.blend(band, Image.new("RGB", band.size, _BAND), 0.6), (0, top))
    draw = ImageDraw.Draw(canvas)
    for index, row in enumerate(rows):
        draw.text((margin, top + margin // 2 + index * step), row, fill=_TEXT, font=font)
    return canvas


def draw_answer(image: Image.Image, lines: Sequence[str]) -> Image.Image:
    """Return a copy of the image with lines of text in a band below it.

    Args:
        image: any mode and size; a tiny image is enlarged by an integer factor without interpolation.
        lines: of text; long lines are wrapped. The font is chosen by their characters (:mod:`utils.fonts`); a
            character without a font is written as its number, such as [U+4E2D].

    Returns:
        A new RGB image, at least 256 pixels wide.

    Raises:
        DataError: the image cannot be decoded.
    """
    enlarged = to_rgb(image)
    factor = max(1, _MIN_SIDE // max(enlarged.size))
    enlarged = enlarged.resize((enlarged.width * factor, enlarged.height * factor), Image.Resampling.NEAREST)
    width = max(enlarged.width, _MIN_SIDE)
    size = min(max(16, width // 24), _LARGEST_LETTER)
    font, lines = _lettered(lines, size)
    margin, step = size // 2, size * 5 // 4
    rows = [row for line in lines for row in _wrapped(line, font, width - 2 * margin)]
    canvas = Image.new("RGB", (width, enlarged.height + len(rows) * step + 2 * margin), _BAND)
    canvas.paste(enlarged, ((width - enlarged.width) // 2, 0))
    draw = ImageDraw.Draw(canvas)
    for index, row in enumerate(rows):
        draw.text((margin, enlarged.height + margin + index * step), row, fill=_TEXT, font=font)
    return canvas


def _lettered(lines: Sequence[str], size: int) -> tuple[Font, Sequence[str]]:
    """Return a font for these lines, and the lines with missing characters as numbers."""
    text = "".join(lines)
    if text.isascii():
        return ImageFont.load_default(size=size), lines
    from utils.fonts import font_for

    chosen = font_for(text, size)
    numbers = {ord(one): f"[U+{ord(one):04X}]" for one in chosen.missing}
    return chosen.font, [line.translate(numbers) for line in lines]


def save_drawn(
    path: str | os.PathLike[str],
    lines: Sequence[str],
    out_dir: str | os.PathLike[str],
    image: Image.Image | None = None,
) -> Path:
    """Draw the answer on an image file and write it atomically as ``<out_dir>/<stem>.png``.

    Drawing the same input again replaces the file; if the file belongs to another input (or was not drawn),
    ``<stem>-<hash of the input's path>.png`` is written instead.

    Args:
        path: the input.
        lines: as for :func:`draw_answer`.
        out_dir: the folder, created if missing.
        image: drawn in place of the file's image, such as one with boxes.

    Returns:
        The file written.

    Raises:
        DataError: the image cannot be read.
        ConfigError: ``out_dir`` cannot be created or written to.
    """
    image = open_image(path) if image is None else image
    folder, stem = Path(out_dir), stem_of(path)
    drawing = _drawing.get()
    if drawing is not None:
        drawing.receiver(image, list(lines))
        if not drawing.files:
            return folder / file_name(stem, ".png")
    drawn = draw_answer(image, lines)
    source = hashlib.sha256(os.fsencode(Path(path).resolve())).hexdigest()
    note = PngImagePlugin.PngInfo()
    note.add_text(_SOURCE, source)
    draft = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            drawn.save(draft, format="PNG", pnginfo=note)
            first = folder / file_name(stem, ".png")
            target = first if _claimed(first, source) else folder / file_name(stem, f"-{source[:12]}.png")
            return draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot write drawn images to {folder} ({error.strerror or error}); choose another folder"
        ) from error


def file_name(stem: str, ending: str) -> str:
    """Return a file name; a long stem is truncated."""
    return os.fsdecode(os.fsencode(stem)[: _LONGEST_NAME - len(ending)]) + ending


def _claimed(target: Path, source: str) -> bool:
    """Create the file, atomically for other threads and ranks; return whether it is new, or belongs to the input."""
    try:
        target.touch(exist_ok=False)
    except FileExistsError:
        return _source_of(target) == source
    return True


def _source_of(path: Path) -> str | None:
    """Return the hash of a drawn image's input; ``None`` for any other file."""
    try:
        with opened(path, path) as image:
            return str(image.info.get(_SOURCE))
    except (DataError, OSError):  # not an image
        return None


def _wrapped(line: str, font: Font, width: int) -> list[str]:
    """Break a line between words, and inside words longer than the width; white space becomes one space."""
    rows: list[str] = []
    row = ""
    for word in line.split():
        joined = f"{row} {word}" if row else word
        if row and font.getlength(joined) > width:
            rows.append(row)
            joined = word
        while len(joined) > 1 and font.getlength(joined) > width:
            fits = _fitting(joined, font, width)
            rows.append(joined[:fits])
            joined = joined[fits:]
        row = joined
    return [*rows, row]


def _fitting(text: str, font: Font, width: float) -> int:
    """Return the number of characters of a text that fit into the width, at least one."""
    return max(1, bisect_right(range(1, len(text)), width, key=lambda count: font.getlength(text[:count])))
