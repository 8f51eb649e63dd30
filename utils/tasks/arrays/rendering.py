"""The outputs of a model for people: short text, and drawings of images, maps and curves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array
from tecoinfer_modelzoo.text import shape_text
from utils.tasks.base import Rendering

if TYPE_CHECKING:
    from PIL import Image

FEW = 8
"""Values that are printed."""

ANSWERED = 256
"""Values of an output in the JSON; larger outputs are described by shape and range."""

LEAST_SIDE, LEAST_LENGTH = 8, 16
"""Sizes from which an output is drawn: the shorter side of an image, and the length of a curve."""

MOST_CURVES = 8

WIDTH, HEIGHT, EDGE = 512, 256, 8
"""Sizes of a drawn curve, in pixels."""

_CURVE = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
          (200, 200, 200))  # fmt: skip
"""Colours that differ for colour-blind readers too (Okabe and Ito 2008)."""


def rendered(name: str, outputs: Mapping[str, Array], labels: Mapping[str, list[str]]) -> Rendering:
    """Return the answer of a sample.

    Args:
        name: of the sample. outputs: by name. labels: class names of outputs that are vectors of as many scores.
    """
    words = {key: in_words(array, labels.get(key)) for key, array in outputs.items()}
    lines = [text if len(words) == 1 else f"{key} {text}" for key, text in words.items()]
    answer = {key: _plain(array) for key, array in outputs.items()}
    drawn = {key: array for key, array in outputs.items() if kind_of(array)}
    return Rendering("; ".join(lines), answer, partial(save, name, drawn, lines) if drawn else None)


def in_words(array: Array, labels: list[str] | None = None) -> str:
    """Return an output as short text: few values, the best class of a vector, or shape and range."""
    flat = array.reshape(-1)
    if labels is not None and len(labels) == flat.size:
        best = int(flat.argmax())
        return f"{labels[best]}  {flat[best]:.3f}"
    if flat.size <= FEW:
        text = " ".join(f"{value:.4g}" for value in flat.astype(np.float64).tolist())
        return text if array.ndim < 2 else f"{shape_text(array.shape)}: {text}"
    if array.ndim == 1 and array.dtype.kind == "f" and not kind_of(array):
        return f"largest {flat.max():.4g} at {int(flat.argmax())} of {flat.size}"
    low, high, mean = (float(value) for value in (flat.min(), flat.max(), flat.mean(dtype=np.float64)))
    return f"{shape_text(array.shape)} from {low:.4g} to {high:.4g}, mean {mean:.4g}"


def _plain(array: Array) -> Any:
    """Return an output as JSON: its values, or shape and range of a large one."""
    if array.size <= ANSWERED:
        return array.tolist()
    return {"shape": list(array.shape), "min": float(array.min()), "max": float(array.max())}


def kind_of(array: Array) -> str:
    """Return how an output is drawn: ``image``, ``map``, ``curve``; empty if it is not."""
    shape = [size for size in array.shape if size != 1] if array.ndim > 3 else list(array.shape)
    if array.dtype.kind not in "fiub":
        return ""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= LEAST_SIDE:
        return "image" if shape[0] == 3 else "map"
    if len(shape) == 3 and shape[2] in (1, 3) and min(shape[:2]) >= LEAST_SIDE:
        return "image" if shape[2] == 3 else "map"
    if len(shape) == 2 and min(shape) <= MOST_CURVES and max(shape) >= LEAST_LENGTH:
        return "curve"
    if len(shape) == 2 and min(shape) >= LEAST_SIDE:
        return "map"
    return "curve" if len(shape) == 1 and shape[0] >= LEAST_LENGTH else ""


def save(name: str, outputs: Mapping[str, Array], lines: list[str], folder: Path) -> Path:
    """Draw outputs below one another, with lines of text, and return the file."""
    from PIL import Image

    from utils.draw import save_drawn

    panels = [drawing_of(array) for array in outputs.values()]
    width = max(panel.width for panel in panels)
    canvas = Image.new("RGB", (width, sum(panel.height for panel in panels) + EDGE * (len(panels) - 1)))
    top = 0
    for panel in panels:
        canvas.paste(panel, (0, top))
        top += panel.height + EDGE
    stem = re.sub(r"[^A-Za-z0-9.()\[\]-]+", "_", Path(name).name)
    return save_drawn(Path(f"{stem}.png"), [Path(name).name, *lines], folder, canvas)


def _image(array: Array) -> Image.Image:
    """Draw 3 x H x W or H x W x 3: 8 bits or 0 to 1 as they are, other ranges stretched."""
    from PIL import Image

    found = _squeezed(array)
    found = np.moveaxis(found, 0, -1) if found.shape[0] == 3 else found
    return Image.fromarray(_bytes(found))


def _map(array: Array) -> Image.Image:
    """Draw H x W in grey, with the smallest value black and the largest white."""
    from PIL import Image

    found = _squeezed(array)
    found = found.reshape([size for size in found.shape if size != 1]) if found.ndim == 3 else found
    return Image.fromarray(_stretched(found)).convert("RGB")


def _curve(array: Array) -> Image.Image:
    """Draw a line per row of the shorter axis, the values upwards."""
    from PIL import Image, ImageDraw

    found = np.atleast_2d(_squeezed(array)).astype(np.float64)
    rows = found if found.shape[0] <= found.shape[1] else found.T
    low, high = float(rows.min()), float(rows.max())
    image = Image.new("RGB", (WIDTH, HEIGHT), (24, 24, 24))
    draw, across = ImageDraw.Draw(image), np.linspace(EDGE, WIDTH - EDGE, rows.shape[1])
    for row, colour in zip(rows, _CURVE, strict=False):
        up = HEIGHT - EDGE - (row - low) / ((high - low) or 1.0) * (HEIGHT - 2 * EDGE)
        draw.line(list(zip(across.tolist(), up.tolist(), strict=True)), fill=colour, width=2)
    return image


_DRAWN = {"image": _image, "map": _map, "curve": _curve}


def drawing_of(array: Array) -> Image.Image:
    """Draw an array of which :func:`kind_of` is not empty."""
    return _DRAWN[kind_of(array)](array)


def _squeezed(array: Array) -> Array:
    return array.reshape([size for size in array.shape if size != 1]) if array.ndim > 3 else array


def _bytes(array: Array) -> Array:
    """Return pixels as uint8."""
    if array.dtype == np.uint8:
        return array
    low, high = float(array.min()), float(array.max())
    if array.dtype.kind == "f" and low >= -0.25 and high <= 1.25:
        return _rounded(array.astype(np.float64).clip(0, 1) * 255)
    if low >= -32 and 2 < high <= 287 and (low >= -0.25 or high > 32):  # not standard normal values
        return _rounded(array.astype(np.float64).clip(0, 255))
    return _stretched(array)


def _stretched(array: Array) -> Array:
    """Return values as uint8, the smallest 0 and the largest 255."""
    wide = array.astype(np.float64)
    low, high = float(wide.min()), float(wide.max())
    return _rounded((wide - low) / ((high - low) or 1.0) * 255)


def _rounded(values: Array) -> Array:
    found: Array = np.rint(values).astype(np.uint8)
    return found
