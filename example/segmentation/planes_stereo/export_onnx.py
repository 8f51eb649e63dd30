"""Export planes_stereo to ONNX: planes_stereo.onnx, planes_stereo_dyn.onnx, planes_stereo_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.stereo_scenes import HEIGHT, WIDTH
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import PlanesStereo

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PREPROCESS = {"resize_shape": [HEIGHT, WIDTH], "crop_shape": [HEIGHT, WIDTH], "mean": [0.0] * 3, "std": [1.0] * 3}
PROVENANCE = {
    "source": "example/segmentation/planes_stereo/model.py",
    "weights": "planes_stereo.pth, trained by train.py on rendered scenes",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "planes_stereo.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    chance = torch.Generator().manual_seed(0)
    results = export_onnx(
        load_weights(PlanesStereo(), args.weights),
        [torch.rand(1, 3, HEIGHT, WIDTH, generator=chance) for _ in range(2)],
        args.out / "planes_stereo",
        input_names=["left", "right"],
        output_names=["disparity", "confidence"],
        preprocess=PREPROCESS,
        provenance=PROVENANCE,
        notes={"dense_regression": {"quantity": "disparity", "view_order": "left_right"}},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
