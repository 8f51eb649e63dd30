"""Export m1 to ONNX: a static, a dynamic and a dynamic float16 file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.extra import needed
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import Net

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
SOURCE = "example/classification/m1/model.py"
LABELS = ["circle", "cross", "square"]
SIZE = 32
PREPROCESS = {"resize_shape": SIZE, "crop_shape": SIZE, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", default="random", help="path of a .pth file, or random")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Net(len(LABELS))
    if args.weights == "random":
        print("random weights: for functional and speed checks only")
    else:
        load_weights(model, args.weights)
    example = torch.randn(1, 3, SIZE, SIZE)
    notes = {"labels": LABELS, "preprocess": PREPROCESS}
    notes["provenance"] = {"source": SOURCE, "weights": Path(args.weights).name}
    for result in export_onnx(model, example, args.out / "m1", **notes):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
