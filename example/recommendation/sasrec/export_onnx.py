"""Write SASRec as ONNX, sasrec*.onnx; train it first if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.ratings import read_ratings
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import SASRec
    from train import add_flags, name_of, sizes_of, train

    from utils.export.networks.random_weights import RANDOM, seeded
    from utils.export.torch_export import export_onnx, load_weights

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_flags(parser)
    parser.add_argument(
        "--weights", help=f"a state dict, or '{RANDOM}' (default: those of train.py, trained if missing)"
    )
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    ratings, sizes, name = read_ratings(args.data_path), sizes_of(args), name_of(args.split)
    weights = Path(args.weights or HERE / f"{name}.pth")
    if args.weights is None and not weights.is_file():
        train(ratings, args.split, args.steps, weights, sizes)
    items = ratings.item_names
    if args.weights == RANDOM:
        network, note = seeded(lambda: SASRec(len(items), **sizes)), RANDOM
    else:
        network, note = load_weights(SASRec(len(items), **sizes), weights), f"train.py, split {args.split}"
    made = torch.Generator().manual_seed(0)
    history = torch.randint(1, len(items) + 1, (1, network.places.shape[0]), generator=made)
    history[:, :7] = 0
    results = export_onnx(
        network,
        history,
        args.out / name,
        input_names=["history"],
        output_names=["scores"],
        vocabulary=["", *items],
        provenance={"source": "example/recommendation/sasrec/model.py", "weights": note},
        notes={"recommendation": {"split": args.split}},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
