"""Drawing of objects with masks on an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from utils.postprocess.image.drawn_boxes import draw_boxes
from utils.postprocess.image.drawn_masks import STRENGTH, colour_of
from utils.postprocess.image.instances import Mask
from utils.preprocess.image.images import open_image


def save_instances(
    sample: Path, objects: Sequence[Mapping[str, Any]], masks: Sequence[Mask], text: str, folder: Path
) -> Path:
    """Draw masks, each in a colour of its own, and boxes on an image into a folder, with a text below; return the
    file."""
    from utils.draw import save_drawn

    pixels = np.asarray(open_image(sample), np.float32).copy()
    for place in reversed(range(len(masks))):  # the highest score is on top
        mask = masks[place]
        part = pixels[mask.top : mask.top + mask.bits.shape[0], mask.left : mask.left + mask.bits.shape[1]]
        part[mask.bits] = (1 - STRENGTH) * part[mask.bits] + STRENGTH * np.array(colour_of(place), np.float32)
    image = Image.fromarray(np.rint(pixels).astype(np.uint8))
    return save_drawn(sample, [text], folder, draw_boxes(image, objects))
