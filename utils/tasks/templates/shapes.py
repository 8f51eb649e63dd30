"""Sample images of classification: one drawn shape each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

SHAPES = ("circle", "cross", "square")
"""Classes of the sample images."""

SIZE = 32
"""Height and width of the sample images and of the tiny network's input."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw two images of each shape into ``images/`` with their label file; return words for the templates."""
    (folder / "images").mkdir(parents=True)
    labels = [_draw(folder / "images", shape, label) for label, shape in enumerate(SHAPES)]
    text = "# Images drawn by `teco new` and their classes: path and class index.\n" + "".join(labels)
    (folder / "images" / "val.txt").write_text(text, encoding="utf-8")
    return {"shapes": ", ".join(SHAPES), "size": str(SIZE), "labels": json.dumps(SHAPES)}


def _draw(folder: Path, shape: str, label: int) -> str:
    """Draw two images of a shape and return their lines of the label file."""
    from PIL import Image, ImageDraw

    lines = []
    for index, (edge, ink) in enumerate([(6, (200, 60, 40)), (9, (40, 90, 200))]):
        image = Image.new("RGB", (SIZE, SIZE), (240, 240, 240))
        pen, far = ImageDraw.Draw(image), SIZE - 1 - edge
        if shape == "circle":
            pen.ellipse((edge, edge, far, far), fill=ink)
        elif shape == "square":
            pen.rectangle((edge, edge, far, far), fill=ink)
        else:
            pen.line((edge, edge, far, far), fill=ink, width=4)
            pen.line((edge, far, far, edge), fill=ink, width=4)
        name = f"{shape}_{index}.png"
        image.save(folder / name, optimize=True)
        lines.append(f"{name} {label}\n")
    return "".join(lines)
