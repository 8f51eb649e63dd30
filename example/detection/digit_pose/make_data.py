"""Write the held-out scenes of the digit poses: data/val.json (COCO's key points) and data/val/<number>.jpg.

Four more, data/samples/<number>.jpg, are unlabelled samples. The scenes are the first ones of the digit detector's; the
points of a digit are computed from its ink (``utils/datasets/synthetic/digit_points.py``): the ends of its line, and
where it meets itself. ``LICENSES.md`` names the photographs.
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
from utils.datasets.synthetic.digit_points import POINTS, points_of
from utils.datasets.synthetic.digit_scenes import SIZE, Scene, compose, sources
from utils.pipeline import cli

SCENES = 100
SAMPLES = range(300, 304)
SEED = 7
QUALITY = 90
LABELS = tuple(str(digit) for digit in range(10))
SKELETON = ((1, 3), (3, 2))
"""Connected points, from 1, as COCO's files have them: the ends with the crossing."""


def save(made: Scene, path: Path) -> None:
    """Write a scene's image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(made.image).save(path, quality=QUALITY, subsampling=0, optimize=True)


def annotations(number: int, first: int, made: Scene) -> list[dict[str, Any]]:
    """Return a scene's objects as COCO's JSON has them, numbered from ``first``; the area is that of the box."""
    found = []
    for place, (box, label) in enumerate(zip(made.boxes.tolist(), made.labels.tolist(), strict=True)):
        left, top, right, bottom = box
        points = points_of(made.shows == place).round(1).tolist()
        values = [[x, y, 2] if x == x else [0, 0, 0] for x, y in points]
        found.append(
            {
                "id": first + place,
                "image_id": number,
                "category_id": label + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top),
                "iscrowd": 0,
                "keypoints": [value for one in values for value in one],
                "num_keypoints": sum(one[2] > 0 for one in values),
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
    for number in SAMPLES:
        save(compose(made_of, SEED, number), out / "samples" / f"{number:04d}.jpg")
    names = {"keypoints": list(POINTS), "skeleton": [list(pair) for pair in SKELETON]}
    categories = [{"id": place + 1, "name": label, **names} for place, label in enumerate(LABELS)]
    everything = {"images": images, "annotations": objects, "categories": categories}
    (out / "val.json").write_text(json.dumps(everything, separators=(",", ":")) + "\n", encoding="utf-8")
    count = sum(one["num_keypoints"] for one in objects)
    print(f"{out}: {SCENES} scenes with {len(objects)} digits and {count} points")
    return 0


if __name__ == "__main__":
    cli.run(main)
