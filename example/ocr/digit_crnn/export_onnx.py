"""Export the digit reader to ONNX: digit_crnn.onnx, digit_crnn_dyn.onnx, digit_crnn_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import DIGITS, DigitCRNN

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
HEIGHT, WIDTH = 32, 160
NOTES = {
    "text_recognition": {
        "blank": 0,
        "channel_order": "GRAY",
        "pixel_values": "-1..1",
        "interpolation": "bilinear",
        "height": HEIGHT,
        "min_width": 32,
        "max_width": 512,
        "multiple": 4,
    }
}
"""Preprocessing of a line, the same as in train.py."""

PROVENANCE = {
    "source": "example/ocr/digit_crnn/model.py",
    "weights": "digit_crnn.pth, trained by train.py on lines composed of handwritten digits and photographs",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digit_crnn.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    results = export_onnx(
        load_weights(DigitCRNN(), args.weights),
        torch.randn(1, 1, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0)),
        args.out / "digit_crnn",
        output_names=["probabilities"],
        dynamic={"input": {0: "batch", 3: "width"}},
        vocabulary=[str(digit) for digit in range(DIGITS)],
        provenance=PROVENANCE,
        notes=NOTES,
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
