"""Export the digit instances to ONNX: a static, a dynamic and a dynamic float16 file."""

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
    from model import DigitInstances

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
SIZE = 160
PREPROCESS = {"resize_shape": SIZE, "crop_shape": SIZE, "mean": [0.5] * 3, "std": [0.25] * 3}
PROVENANCE = {
    "source": "example/segmentation/digit_instances/model.py",
    "weights": "digit_instances.pth, trained by train.py on scenes composed of handwritten digits and photographs",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digit_instances.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    results = export_onnx(
        load_weights(DigitInstances(), args.weights),
        torch.randn(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)),
        args.out / "digit_instances",
        output_names=["rows", "prototypes"],
        labels=[str(digit) for digit in range(10)],
        preprocess=PREPROCESS,
        provenance=PROVENANCE,
        notes={"detection": {"layout": "yolo_seg"}},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
