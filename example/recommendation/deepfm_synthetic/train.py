"""Train DeepFM on synthetic clicks, write deepfm_synthetic.pth and features.json, and print the metrics: 15 seconds.

``make_data.py`` generates the training rows, which are not stored; ``data/val.csv`` is only used at the end.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from make_data import HELD_OUT, NEWCOMERS, PEOPLE, TRAIN_SEED, TRAINING, VAL_SEED, rows_of, world

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.clicks import Click, load_table
from utils.metrics.clicks import Clicks
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.click_models import Wish, features_of, predictor, trained
    from utils.export.networks.training import save

HERE = Path(__file__).resolve().parent
WEIGHTS, FEATURES = HERE / "deepfm_synthetic.pth", HERE / "features.json"
STEPS = 1200

WISHES = (
    Wish("user_id"),
    Wish("item_id", "hashed", size=509),
    Wish("age", step=5),
    Wish("category"),
    Wish("device"),
    Wish("hour", step=6),
    Wish("tags", "multi"),
    Wish("price", "number", transform="log1p"),
)
"""Features of the network; items are hashed, so that their number is not limited."""


def auc(scores: list[float], targets: list[Click]) -> str:
    """Return AUC, log loss and GAUC as text."""
    metric = Clicks()
    metric.update(scores, targets)
    values = {"auc": metric.compute(), **metric.secondary()}
    return ", ".join(f"{name} {values[name]:.4f}" for name in ("auc", "log_loss", "gauc"))


def main() -> int:
    """Train, write the files, and evaluate on the held-out rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--steps", type=int, default=STEPS, help=f"batches (default: {STEPS})")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the weights and features")
    args = parser.parse_args()
    started = time.process_time()
    shop = world()
    rows, _ = rows_of(shop, TRAINING, TRAIN_SEED, PEOPLE - NEWCOMERS)
    features = features_of(rows, WISHES, {})
    network = trained(features, rows, [Click(row["label"] == "1") for row in rows], steps=args.steps)
    save(network, args.out / WEIGHTS.name)
    text = json.dumps(features.to_json(), ensure_ascii=False, indent=1)
    (args.out / FEATURES.name).write_text(text + "\n", encoding="utf-8")
    print(f"{args.out / WEIGHTS.name}: {time.process_time() - started:.0f} s of one core")
    held_out = load_table(HERE / "data" / "val.csv")
    targets = list(held_out.targets or ())
    print(f"held out: {auc(predictor(network, features)(held_out.samples).tolist(), targets)}")
    print(f"the odds they were drawn by: {auc(rows_of(shop, HELD_OUT, VAL_SEED, PEOPLE)[1].tolist(), targets)}")
    return 0


if __name__ == "__main__":
    cli.run(main)
