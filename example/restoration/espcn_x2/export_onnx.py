"""Export espcn_x2 to ONNX: espcn_x2.onnx, espcn_x2_dyn.onnx, espcn_x2_float16_dyn.onnx."""

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
    from model import RADIUS, SCALE, Espcn

    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
SIZE = 64
"""Height and width of the input: larger images are cut into tiles of this size."""

RESTORATION = {
    "scale": SCALE,
    "pixel_values": "0..1",
    "channel_order": "RGB",
    "tile_overlap": 2 * RADIUS + 2,  # so that a tile gives what the whole image would
    "y_channel": True,
    "crop_border": SCALE,
}
PROVENANCE = {
    "source": "example/restoration/espcn_x2/model.py",
    "weights": "espcn_x2.pth, trained by train.py on pieces of photographs",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "espcn_x2.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    results = export_onnx(
        load_weights(Espcn(), args.weights),
        torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0)),
        args.out / "espcn_x2",
        output_names=["output"],
        provenance=PROVENANCE,
        notes={"restoration": RESTORATION},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
