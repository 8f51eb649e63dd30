"""Preview of samples with their targets, drawn into one image: whether the data are read as they are meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, TecoInferError
from tecoinfer_modelzoo.text import one_line, shape_text, shortened
from utils.datasets.base import Dataset
from utils.datasets.image.objects import Objects
from utils.preprocess.audio.reading import Recording, read_sound

if TYPE_CHECKING:
    from PIL import Image

SHOWN = 5
"""Samples of a preview."""

_WIDTH, _EDGE, _LONGEST, _POINTS = 480, 8, 400, 4000
_SHEET = 1000  # pixels of the widest row of panels
_BOX = (230, 159, 0)


def drawn(dataset: Dataset, target: Path, labels: Sequence[str] = ()) -> list[str]:
    """Draw samples from all over the data set into a PNG file; return a line of text per sample.

    Args:
        dataset: with or without targets. target: the file; names of samples below its folder are relative to it.
        labels: names of classes that are numbers.
    """
    from PIL import Image

    from utils.draw import draw_answer

    count = min(SHOWN, len(dataset))
    if not count:
        return []
    batch = dataset.batch(list(range(0, len(dataset), len(dataset) // count)[:count]))
    targets: Sequence[Any] = [None] * count if batch.targets is None else list(batch.targets)
    lines, panels = [], []
    for name, sample, wanted in zip(batch.names, batch.samples, targets, strict=True):
        told = [] if isinstance(sample, Path) else [in_words(sample)]
        told += [] if wanted is None else [f"target {in_words(wanted, labels)}"]
        line = f"{one_line(name).removeprefix(f'{target.parent}/')}: {'; '.join(told)}"
        lines.append(shortened(line, _LONGEST, end=False))
        panel = _panel(sample, wanted)
        panels.append(draw_answer(panel or Image.new("RGB", (_WIDTH, 1)), [lines[-1]]))
    sheet = _sheet(panels)
    sheet.save(target, optimize=True)
    return lines


def _sheet(panels: Sequence[Image.Image]) -> Image.Image:
    """Return panels beside one another, in as many rows as the width needs."""
    from PIL import Image

    places, left, top, below = [], 0, 0, 0
    for panel in panels:
        if left and left + panel.width > _SHEET:
            left, top = 0, below
        places.append((left, top))
        left, below = left + panel.width + _EDGE, max(below, top + panel.height + _EDGE)
    width = max(x + panel.width for (x, _), panel in zip(places, panels, strict=True))
    sheet = Image.new("RGB", (width, below), (24, 24, 24))  # as the panels
    for place, panel in zip(places, panels, strict=True):
        sheet.paste(panel, place)
    return sheet


def in_words(value: Any, labels: Sequence[str] = ()) -> str:
    """Return a sample or target as short text."""
    if isinstance(value, (bool, np.bool_)) or value is None:
        return str(value)
    if isinstance(value, (int, np.integer)):
        number = int(value)
        return f"{number} ({labels[number]})" if 0 <= number < len(labels) else str(number)
    if isinstance(value, (float, np.floating)):
        return f"{float(value):.4g}"
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Objects):
        names = [value.categories[one] if value.categories else str(one) for one in value.classes.tolist()]
        return f"{len(names)} objects" + (f" ({', '.join(names[:8])})" if names else "")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(one, labels)}" for key, one in value.items())
    if hasattr(value, "arrays"):
        return ", ".join(map(in_words, value.arrays))
    if isinstance(value, (list, tuple)):
        return " ".join(in_words(one, labels) for one in value[:40] if one is not None)
    return one_line(value)


def _array_text(array: Array) -> str:
    flat = array.reshape(-1)
    if flat.size <= 8:
        return " ".join(f"{one:.4g}" if array.dtype.kind == "f" else str(one) for one in flat.tolist())
    if array.dtype.kind not in "fiub":
        return f"{shape_text(array.shape)} {array.dtype}"
    return f"{shape_text(array.shape)} {array.dtype} from {float(flat.min()):.4g} to {float(flat.max()):.4g}"


def _panel(sample: Any, target: Any) -> Image.Image | None:
    """Return a drawing of a sample: an image with its boxes, an array, a sound; ``None`` for anything else."""
    for kind, draw in _DRAWN:
        if isinstance(sample, kind):
            return draw(sample, target)
    if hasattr(sample, "arrays"):
        return _arrays([*sample.arrays, *(target.values() if isinstance(target, Mapping) else ())])
    if hasattr(sample, "high") and isinstance(sample.high, Path):
        return _file(sample.high, None)
    return _sound(sample) if isinstance(sample, Recording) else None


def _sound(sample: Recording) -> Image.Image | None:
    """Draw the curve of a recording."""
    try:
        samples = read_sound(sample).samples
    except TecoInferError:  # the run reports it
        return None
    return _arrays([samples[:: max(1, len(samples) // _POINTS)]])


def _file(path: Path, target: Any) -> Image.Image | None:
    from PIL import ImageDraw

    from utils.preprocess.image.images import open_image

    try:
        image = open_image(path).convert("RGB")
    except TecoInferError:  # a sound or a text
        return None
    image.thumbnail((_WIDTH, _WIDTH))
    if isinstance(target, Objects) and len(target.boxes):
        whole = open_image(path).size
        scale = image.width / whole[0]
        pen = ImageDraw.Draw(image)
        for box in target.boxes.tolist():
            pen.rectangle([round(edge * scale) for edge in box], outline=_BOX, width=2)
    return image


def _arrays(arrays: Sequence[Any]) -> Image.Image | None:
    """Draw the arrays that are images, maps or curves side by side."""
    from PIL import Image

    from utils.tasks.arrays.rendering import drawing_of, kind_of

    panels = [drawing_of(array) for array in arrays if isinstance(array, np.ndarray) and kind_of(array)]
    if not panels:
        return None
    for panel in panels:
        panel.thumbnail((_WIDTH, _WIDTH))
    sheet = Image.new("RGB", (sum(one.width + _EDGE for one in panels), max(one.height for one in panels)))
    left = 0
    for panel in panels:
        sheet.paste(panel, (left, 0))
        left += panel.width + _EDGE
    return sheet


_DRAWN: Sequence[tuple[type, Callable[[Any, Any], Image.Image | None]]] = (
    (Path, _file),
    (np.ndarray, lambda array, target: _arrays([array])),
)
"""Drawings by the type of a sample."""
