"""Drawing of maps in colours next to their image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import Array
from utils.draw import save_drawn
from utils.postprocess.image.colour_maps import coloured
from utils.postprocess.image.side_by_side import side_by_side
from utils.preprocess.image.images import open_image

if TYPE_CHECKING:
    from utils.tasks.dense_regression.inputs import DenseMap


def save(image: Path, found: DenseMap, truth: Array | None, text: str, folder: Path) -> Path:
    """Draw the image, the map, its confidence, and the true values in the same colours, and return the file."""
    shown = found.values if truth is None else np.concatenate([found.values.ravel(), truth[truth > 0]])
    low, high = np.nanpercentile(shown, (1, 99)).tolist()
    panels = {"image": np.asarray(open_image(image)), "predicted": coloured(found.values, low, high)}
    if found.confidence is not None:
        panels["confidence"] = coloured(found.confidence, 0.0, 1.0)
    if truth is not None:
        panels["true"] = coloured(truth, low, high)
    return save_drawn(image, [text], folder, side_by_side(panels))
