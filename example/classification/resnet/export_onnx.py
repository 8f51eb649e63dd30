"""Export a torchvision ResNet to ONNX: <arch>.onnx, <arch>_dyn.onnx and <arch>_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import ConfigError, add_version
from utils.export.forms import add_exporter, add_forms
from utils.export.torch_export import export_onnx
from utils.export.torchvision_models import RANDOM, build
from utils.pipeline import cli

V1, V2 = "IMAGENET1K_V1", "IMAGENET1K_V2"
BEST = {"resnet18": V1, "resnet34": V1, "resnet50": V2, "resnet101": V2, "resnet152": V2}
DYNAMIC = {"input": {0: "batch", 2: "height", 3: "width"}}


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--arch", choices=BEST, default="resnet50")
    parser.add_argument("--weights", help="torchvision's name, path of a .pth file, or random (default: its best)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    parser.add_argument("--input_size", type=int, default=224, help="height and width of the static file")
    parser.add_argument("--batch_size", type=int, default=1, help="batch of the static file")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    args.weights = args.weights or BEST[args.arch]
    return args


def export(args: argparse.Namespace) -> None:
    """Write the three files and print the largest relative error of each."""
    if args.batch_size < 1 or args.input_size < 32:
        raise ConfigError(
            f"--batch_size {args.batch_size} must be at least 1, --input_size {args.input_size} at least 32"
        )
    model, labels, preprocess = build(args.arch, args.weights)
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    resize = round(args.input_size * preprocess["resize_shape"] / preprocess["crop_shape"])
    preprocess |= {"resize_shape": resize, "crop_shape": args.input_size}
    shape = (args.batch_size, 3, args.input_size, args.input_size)
    example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    provenance = {"source": f"torchvision {args.arch}", "weights": Path(args.weights).name}
    stem, notes = args.out / args.arch, {"labels": labels, "preprocess": preprocess, "provenance": provenance}
    for result in export_onnx(model, example, stem, dynamic=DYNAMIC, forms=args.forms, exporter=args.exporter, **notes):
        print(result)


def main() -> int:
    """Run the script."""
    export(arguments())
    return 0


if __name__ == "__main__":
    cli.run(main)
