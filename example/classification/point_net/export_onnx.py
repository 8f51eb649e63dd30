"""Export the network of point clouds to ONNX: point_net.onnx, point_net_dyn.onnx, point_net_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from clouds import LABELS, POINTS

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import PointNet

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PROVENANCE = {
    "source": "example/classification/point_net/model.py",
    "weights": "point_net.pth, trained by train.py on clouds that it draws",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "point_net.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    for result in export_onnx(
        load_weights(PointNet(len(LABELS)), args.weights),
        torch.randn(1, POINTS, 3, generator=torch.Generator().manual_seed(0)),
        args.out / "point_net",
        input_names=["points"],
        output_names=["logits"],
        labels=list(LABELS),
        provenance=PROVENANCE,
        forms=args.forms,
        exporter=args.exporter,
    ):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
