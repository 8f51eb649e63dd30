"""Write both towers as ONNX, two_tower_query*.onnx and two_tower_item*.onnx; train them if weights are missing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.ratings import read_ratings
from utils.datasets.tabular.splits import split
from utils.export.forms import add_exporter, add_forms
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import Item, Query
    from train import Towers, add_flags, features_of, name_of, train

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
    ratings, name = read_ratings(args.data_path), name_of(args.split)
    sizes = {"history": args.history, "width": args.width}
    weights = Path(args.weights or HERE / f"{name}.pth")
    if args.weights is None and not weights.is_file():
        train(ratings, args.split, args.steps, weights, sizes)
    features = features_of(ratings, split(ratings.users, ratings.times, args.split))
    towers, note = Towers(features, ratings, **sizes), RANDOM
    if args.weights == RANDOM:
        towers = seeded(lambda: Towers(features, ratings, **sizes))
    else:
        towers, note = load_weights(towers, weights), f"train.py, split {args.split}"
    history = torch.randint(
        1, len(ratings.item_names) + 1, (1, args.history), generator=torch.Generator().manual_seed(0)
    )
    history[:, :7] = 0
    query, item = towers.query, towers.item
    wanted = (
        ("query", query, (history, towers.people[:1]), ["history", "user"], ["", *ratings.item_names]),
        ("item", item, (towers.ids[:1], towers.genres[:1]), ["item", "genres"], None),
    )
    for (tower, network, example, inputs, vocabulary), stored in zip(wanted, features, strict=True):
        assert isinstance(network, Query | Item)  # noqa: S101 - they are what was made
        results = export_onnx(
            network,
            example,
            args.out / f"{name}_{tower}",
            input_names=inputs,
            output_names=["vector"],
            vocabulary=vocabulary,
            provenance={"source": "example/recommendation/two_tower/model.py", "weights": note},
            notes={"recommendation": {"split": args.split}, "features": stored.to_json()},
            forms=args.forms,
            exporter=args.exporter,
        )
        for result in results:
            print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
