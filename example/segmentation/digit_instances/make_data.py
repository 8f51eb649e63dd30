"""Write the held-out scenes of the digit instances: data/val.json (COCO's instances) and data/val/<number>.jpg.

Four more, data/samples/<number>.jpg, are unlabelled samples. The scenes are the first ones of the digit detector's; the
region of a digit is its ink, as COCO's run lengths. ``LICENSES.md`` names the photographs.
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
from utils.datasets.image.regions import text_of_runs
from utils.datasets.synthetic.digit_scenes import SIZE, Scene, compose, sources
from utils.pipeline import cli

SCENES = 100
SAMPLES = range(300, 304)
SEED = 7
QUALITY = 90
LABELS = tuple(str(digit) for digit in range(10))


def save(made: Scene, path: Path) -> None:
    """Write a scene's image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(made.image).save(path, quality=QUALITY, subsampling=0, optimize=True)


def annotations(number: int, first: int, made: Scene) -> list[dict[str, Any]]:
    """Return a scene's objects as COCO's JSON has them, numbered from ``first``; the area is that of the ink."""
    found = []
    for place, (box, label) in enumerate(zip(made.boxes.tolist(), made.labels.tolist(), strict=True)):
        left, top, right, bottom = box
        ink = made.shows == place
        found.append(
            {
                "id": first + place,
                "image_id": number,
                "category_id": label + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": int(ink.sum()),
                "iscrowd": 0,
                "segmentation": {"size": [SIZE, SIZE], "counts": text_of_runs(ink)},
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
    categories = [{"id": place + 1, "name": label} for place, label in enumerate(LABELS)]
    everything = {"images": images, "annotations": objects, "categories": categories}
    (out / "val.json").write_text(json.dumps(everything, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{out}: {SCENES} scenes with {len(objects)} digits")
    return 0


if __name__ == "__main__":
    cli.run(main)
