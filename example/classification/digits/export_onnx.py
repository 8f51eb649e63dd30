"""Export the digits network to ONNX: digits.onnx, digits_dyn.onnx and digits_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import DigitsNet

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PREPROCESS = {"resize_shape": 32, "crop_shape": 32, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
PROVENANCE = {"source": "example/classification/digits/model.py", "weights": "digits.pth, trained by train.py"}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digits.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    model = load_weights(DigitsNet(), args.weights)
    example = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    stem = args.out / "digits"
    labels = [str(digit) for digit in range(10)]
    notes = {"labels": labels, "preprocess": PREPROCESS, "provenance": PROVENANCE}
    for result in export_onnx(model, example, stem, forms=args.forms, **notes):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
