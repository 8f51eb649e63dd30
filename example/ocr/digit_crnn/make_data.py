"""Write the held-out lines of the digit reader: data/val/images/<number>.jpg, and data/val/rec_gt.txt with their texts.

Eight more, data/samples/<number>.jpg, are samples without a text. ``utils/datasets/synthetic/digit_lines.py``
composes all of 360 handwritten digits and six photographs that are not in the training lines; ``LICENSES.md`` lists the
photographs. A row of ``rec_gt.txt`` is an image's path, a tab and the text, as in PaddleOCR's format.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.progress import progress
from utils.datasets.synthetic.digit_lines import Line, compose
from utils.datasets.synthetic.digit_scenes import sources
from utils.pipeline import cli

LINES = 500
SAMPLES = 8
SEED = 2
QUALITY = 85


def save(made: Line, path: Path) -> None:
    """Write a line's image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(made.image).save(path, quality=QUALITY, subsampling=0, optimize=True)


def main() -> int:
    """Write images and texts below ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "data")
    out = parser.parse_args().out
    made_of, rows = sources("val"), []
    for number in progress(range(LINES), "line"):
        made = compose(made_of, SEED, number)
        name = f"images/{number:04d}.jpg"
        save(made, out / "val" / name)
        rows.append(f"{name}\t{made.text}\n")
    (out / "val" / "rec_gt.txt").write_text("".join(rows), encoding="utf-8", newline="\n")
    for number in range(LINES, LINES + SAMPLES):
        save(compose(made_of, SEED, number), out / "samples" / f"{number:04d}.jpg")
    print(f"{out}: {LINES} lines, {sum(len(row.split(chr(9))[1]) - 1 for row in rows)} digits")
    return 0


if __name__ == "__main__":
    cli.run(main)
