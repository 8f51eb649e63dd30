"""Export deepfm_synthetic to ONNX: a static, a dynamic and a dynamic float16 file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.clicks import load_table
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli
from utils.preprocess.features import Features

with needed(__file__):
    from utils.export.networks.click_models import DENSE, IDS, network_of
    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent
PROVENANCE = {
    "source": "utils/export/networks/click_models.py",
    "weights": "deepfm_synthetic.pth, trained by train.py on made-up clicks",
}


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--weights", type=Path, default=HERE / "deepfm_synthetic.pth")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    features_file = args.weights.with_name("features.json")
    features = Features.from_json(json.loads(features_file.read_text(encoding="utf-8")), str(features_file))
    arrays = features.encoded(load_table(HERE / "data" / "rows.csv").samples[:1])
    results = export_onnx(
        load_weights(network_of(features), args.weights),
        {IDS: arrays[IDS], DENSE: arrays[DENSE]},
        args.out / "deepfm_synthetic",
        output_names=["probability"],
        provenance=PROVENANCE,
        notes={"features": features.to_json()},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
