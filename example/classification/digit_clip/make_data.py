"""Write data/: the held-out images, captions.txt for retrieval, val.txt for classification by digit, digits.txt."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from scenes import DIGITS, combinations, held_out

from engine import add_version
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write the files and print their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data")
    args = parser.parse_args()
    (args.out / "images").mkdir(parents=True, exist_ok=True)
    captions, labels = [], []
    for place, (one, pixels) in enumerate(zip(combinations()[1], held_out(), strict=True)):
        name = f"images/{place:02}.png"
        Image.fromarray(pixels).save(args.out / name, optimize=True)
        captions.append(f"{name}\t{one.caption}\n")
        labels.append(f"{name} {DIGITS.index(one.digit)}\n")
    lists = {"captions.txt": captions, "val.txt": labels, "digits.txt": [f"{one}\n" for one in DIGITS]}
    for file, lines in lists.items():
        (args.out / file).write_text("".join(lines), encoding="utf-8", newline="\n")
    print(f"{len(captions)} images")
    return 0


if __name__ == "__main__":
    cli.run(main)
