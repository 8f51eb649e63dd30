"""Write DeepFM on MovieLens 100K as ONNX, one model per split; train them first if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.ratings import read_ratings
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    from train import DATA, HERE, SPLITS, parts_of, stem_of, train, weights_of

    from utils.export.networks.click_models import DENSE, IDS, network_of
    from utils.export.torch_export import export_onnx, load_weights


def export(split: str, args: argparse.Namespace) -> None:
    """Write the files of a split and print the largest relative error of each."""
    weights = weights_of(split)
    parts = parts_of(read_ratings(DATA), split) if weights.is_file() else train(split, args.steps)
    arrays = parts.features.encoded(parts.test.samples[:1])
    results = export_onnx(
        load_weights(network_of(parts.features), weights),
        {IDS: arrays[IDS], DENSE: arrays[DENSE].astype(np.float32)},
        args.out / stem_of(split),
        output_names=["probability"],
        provenance={
            "source": "utils/export/networks/click_models.py",
            "weights": f"train.py, on the {split} split of MovieLens 100K",
        },
        notes={"features": parts.features.to_json()},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)


def main() -> int:
    """Export the models of the requested splits."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument(
        "--steps", type=int, help="of the training, if weights are missing (default: 1000, temporal 300)"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    for split in args.splits:
        export(split, args)
    return 0


if __name__ == "__main__":
    cli.run(main)
