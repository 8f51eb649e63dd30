"""Write yolo_stand_in*.onnx: a small network of our own with random weights and the outputs of a YOLO export.

A YOLO network comes from the user: `yolo export model=yolo11n.pt format=onnx` of the ultralytics package writes one.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from model import SmallDetector

    from utils.export.networks.random_weights import RANDOM, seeded
    from utils.export.scripts.detector import Detector, add_common, sides, write

LABELS = ("cat", "cup", "spoon")


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    flags = argparse.ArgumentParser(description=__doc__)
    add_common(flags, HERE)
    flags.add_argument("--weights", choices=[RANDOM], default=RANDOM, help="this stand-in has no other")
    flags.add_argument(
        "--input_size", type=int, nargs="+", metavar="N", help="height (and width), of 32 (default: 640)"
    )
    return flags.parse_args()


def main() -> int:
    """Write the files."""
    args = arguments()
    size = sides(args.input_size, (640, 640), 32)
    found = Detector(
        module=seeded(lambda: SmallDetector(len(LABELS), size), size),
        name="yolo_stand_in",
        source="example/detection/yolo/model.py",
        weights=args.weights,
        size=size,
        image="images",
        outputs=["output0"],
        labels=LABELS,
        note={"layout": "yolov8"},
        mean=[0.0, 0.0, 0.0],
        std=[1.0, 1.0, 1.0],
    )
    for line in write(found, args):
        print(line)
    return 0


if __name__ == "__main__":
    cli.run(main)
