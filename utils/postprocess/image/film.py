"""Drawing of an episode: a strip of some of its frames, or a GIF."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from engine import ConfigError

WIDTH, COLUMNS, BAND = 240, 4, 22
"""Width of an image in pixels, images in a row, and height of a caption in pixels."""

GIF_WIDTH = 300
"""Maximum width of a GIF in pixels."""

_BACK, _TEXT = (24, 24, 24), (255, 255, 255)


def film_strip(frames: Sequence[Image.Image], captions: Sequence[str]) -> Image.Image:
    """Return images, all of one size, in rows of four, each with its caption below, scaled to one width."""
    height = max(1, round(frames[0].height * WIDTH / frames[0].width))
    columns = min(COLUMNS, len(frames))
    rows = math.ceil(len(frames) / columns)
    strip = Image.new("RGB", (columns * (WIDTH + 4) - 4, rows * (height + BAND)), _BACK)
    draw, font = ImageDraw.Draw(strip), ImageFont.load_default(size=14)
    for place, (frame, caption) in enumerate(zip(frames, captions, strict=True)):
        left, top = place % columns * (WIDTH + 4), place // columns * (height + BAND)
        strip.paste(frame.convert("RGB").resize((WIDTH, height), Image.Resampling.BOX), (left, top))
        draw.text((left + 4, top + height + 3), caption, fill=_TEXT, font=font)
    return strip


def save_gif(frames: Sequence[Image.Image], milliseconds: int, target: Path) -> Path:
    """Write images as a looping GIF, atomically. Raises ConfigError if the file is not writable."""
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            first, *others = [_small(frame).quantize(64) for frame in frames]
            first.save(draft, format="GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
            return draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {target} ({error.strerror or error}); choose another folder") from error


def _small(frame: Image.Image) -> Image.Image:
    width = min(GIF_WIDTH, frame.width)
    return frame.convert("RGB").resize((width, max(1, round(frame.height * width / frame.width))), Image.Resampling.BOX)
