"""Write the held-out scenes of the digit detector: data/val.json (COCO's format) and data/val/<number>.jpg.

Eight more, data/samples/<number>.jpg, are unlabelled samples.

``utils/datasets/synthetic/digit_scenes.py`` composes them of 360 handwritten digits and six photographs that
are not in the training scenes; ``LICENSES.md`` names the photographs. The boxes are tight around the ink, in whole
pixels.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.progress import progress
from utils.datasets.synthetic.digit_scenes import SIZE, Scene, compose, sources
from utils.pipeline import cli

SCENES = 300
SAMPLES = 8
SEED = 7
QUALITY = 90
LABELS = tuple(str(digit) for digit in range(10))


def save(made: Scene, path: Path) -> None:
    """Write a scene's image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(made.image).save(path, quality=QUALITY, subsampling=0, optimize=True)


def annotations(number: int, first: int, made: Scene) -> list[dict[str, Any]]:
    """Return a scene's objects as COCO's JSON has them, numbered from ``first``; categories are digits + 1."""
    found = []
    for place, (box, label) in enumerate(zip(made.boxes.tolist(), made.labels.tolist(), strict=True)):
        left, top, right, bottom = box
        width, height = right - left, bottom - top
        ink = int((made.mask[top:bottom, left:right] == label + 1).sum())
        found.append(
            {
                "id": first + place,
                "image_id": number,
                "category_id": label + 1,
                "bbox": [left, top, width, height],
                "area": ink,
                "iscrowd": 0,
            }
        )
    return found


def main() -> int:
    """Write images and annotations below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    out = parser.parse_args().out
    made_of = sources("val")
    images, objects = [], []
    for number in progress(range(SCENES), "scene"):
        made = compose(made_of, SEED, number)
        file = f"val/{number:04d}.jpg"
        save(made, out / file)
        images.append({"id": number, "file_name": file, "width": SIZE, "height": SIZE})
        objects += annotations(number, len(objects) + 1, made)
    for number in range(SCENES, SCENES + SAMPLES):
        save(compose(made_of, SEED, number), out / "samples" / f"{number:04d}.jpg")
    categories = [{"id": place + 1, "name": label} for place, label in enumerate(LABELS)]
    everything = {"images": images, "annotations": objects, "categories": categories}
    (out / "val.json").write_text(json.dumps(everything, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{out}: {SCENES} scenes with {len(objects)} digits")
    return 0


if __name__ == "__main__":
    cli.run(main)
