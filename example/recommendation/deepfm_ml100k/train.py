"""Train DeepFM on MovieLens 100K, on a random and on a temporal split, and print the metrics: 20 seconds.

The ratings are fetched and read in place. Neither they nor the weights may be redistributed: git ignores the weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.base import Batch
from utils.datasets.tabular.clicks import RatedRows, Wanted
from utils.datasets.tabular.ratings import Ratings, read_ratings
from utils.metrics.clicks import Clicks
from utils.pipeline import cli
from utils.preprocess.features import Features

with needed(__file__):
    from utils.export.networks.click_models import Wish, features_of, predictor, trained
    from utils.export.networks.training import save

HERE = Path(__file__).resolve().parent
DATA = "fetch:ml_100k"
SPLITS = ("random", "temporal")
STEPS = {"random": 1000, "temporal": 300}
"""Batches of each split, chosen by the AUC on the validation part; long training overfits to the earlier ratings."""

WISHES = (
    Wish("user_id"),
    Wish("item_id"),
    Wish("age", step=5),
    Wish("gender"),
    Wish("occupation"),
    Wish("year"),
    Wish("zip", letters=1),
    Wish("genres", "multi"),
)


class Parts(NamedTuple):
    """The rows of a split, and the features that are fitted on its training part."""

    train: Batch
    valid: Batch
    test: Batch
    features: Features


def weights_of(split: str) -> Path:
    """Return the path of the weights of a split."""
    return HERE / f"{stem_of(split)}.pth"


def stem_of(split: str) -> str:
    """Return the name of a split's model."""
    return "deepfm_ml100k" if split == "random" else f"deepfm_ml100k_{split}"


def parts_of(ratings: Ratings, split: str) -> Parts:
    """Return the training, validation and test rows of a split, and the features fitted on the training rows."""
    wanted = [Wanted(split, part=part) for part in ("train", "valid", "test")]
    sets = [RatedRows(ratings, one) for one in wanted]
    train, valid, test = (one.batch(range(len(one))) for one in sets)
    return Parts(train, valid, test, features_of(train.samples, WISHES, {"split": sets[0].notes["split"]}))


def figures(scores: Sequence[float], rows: Batch) -> str:
    """Return AUC, log loss, GAUC, and the AUC of the mean per film as a baseline, as text."""
    metric = Clicks()
    metric.update(scores, rows.targets or ())
    values = {"auc": metric.compute(), **metric.secondary()}
    return ", ".join(f"{name} {values[name]:.4f}" for name in ("auc", "log_loss", "gauc", "item_mean_auc"))


def train(split: str, steps: int | None = None, out: Path | None = None) -> Parts:
    """Train on one split, write the weights and print the metrics."""
    parts, started = parts_of(read_ratings(DATA), split), time.process_time()
    network = trained(parts.features, parts.train.samples, parts.train.targets or (), steps=steps or STEPS[split])
    predict = predictor(network, parts.features)
    out = out or weights_of(split)
    save(network, out)
    print(f"{out}: {time.process_time() - started:.0f} s of one core")
    for name in ("valid", "test"):
        rows = getattr(parts, name)
        print(f"  {split} split, {name}, {len(rows.names)} ratings: {figures(predict(rows.samples).tolist(), rows)}")
    return parts


def main() -> int:
    """Train on the requested splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--splits", nargs="+", default=list(SPLITS), choices=SPLITS)
    parser.add_argument("--steps", type=int, help="batches (default: 1000, temporal 300)")
    args = parser.parse_args()
    for split in args.splits:
        train(split, args.steps)
    return 0


if __name__ == "__main__":
    cli.run(main)
