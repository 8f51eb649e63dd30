"""Export the digit poses to ONNX: digit_pose.onnx, digit_pose_dyn.onnx, digit_pose_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.digit_points import POINTS
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import DigitPose

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
SIZE = 160
PREPROCESS = {"resize_shape": SIZE, "crop_shape": SIZE, "mean": [0.5] * 3, "std": [0.25] * 3}
KEYPOINTS = {
    "layout": "yolo_pose",
    "point_names": list(POINTS),
    "skeleton": [[0, 2], [2, 1]],
}
PROVENANCE = {
    "source": "example/detection/digit_pose/model.py",
    "weights": "digit_pose.pth, trained by train.py on scenes composed of handwritten digits and photographs",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "digit_pose.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    results = export_onnx(
        load_weights(DigitPose(), args.weights),
        torch.randn(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)),
        args.out / "digit_pose",
        output_names=["poses"],
        labels=[str(digit) for digit in range(10)],
        preprocess=PREPROCESS,
        provenance=PROVENANCE,
        notes={"detection": KEYPOINTS},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
