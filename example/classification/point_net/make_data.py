"""Write data/val.npz: the held-out clouds and their classes, under the names of the model's input and output."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from clouds import held_out

from engine import add_version
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Write the file and print its contents."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data" / "val.npz")
    args = parser.parse_args()
    points, labels = held_out()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, points=points.astype(np.float16), logits=labels.astype(np.int8))
    print(f"{args.out.name}: {len(points)} clouds of {points.shape[1]} points")
    return 0


if __name__ == "__main__":
    cli.run(main)
