"""Train SASRec on the films that users of MovieLens-100K rated, in order of time, and write sasrec.pth.

The ratings are fetched; neither they nor weights trained on them may be redistributed: git ignores both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, DataError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.histories import sequences
from utils.datasets.tabular.ratings import Ratings, read_ratings
from utils.datasets.tabular.splits import TRAIN, split
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import SASRec
    from torch import nn
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
DATA = "fetch:ml_100k"
STEPS, BATCH, RATE, DROPOUT = 500, 64, 0.005, 0.3
"""Chosen by nDCG@10 on the validation part of the split leave_one_out."""


def batches(histories: list[Array], places: int, seed: int) -> Iterator[torch.Tensor]:
    """Yield BATCH x (places + 1) item ids: random parts of histories, padded with zeros at the start."""
    usable = [one for one in histories if len(one) > 1]
    if not usable:
        raise DataError("no user has two ratings in the training part; there is nothing to learn from")
    chance = np.random.default_rng(seed)
    while True:
        rows = np.zeros((BATCH, places + 1), np.int64)
        for row, place in zip(rows, chance.integers(len(usable), size=BATCH).tolist(), strict=True):
            own = usable[place]
            end = int(chance.integers(min(places + 1, len(own)), len(own) + 1))
            piece = own[max(0, end - places - 1) : end]
            row[places + 1 - len(piece) :] = piece
        yield torch.from_numpy(rows)


def loss(network: SASRec, rows: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of the next item at each position, over all items."""
    states, right = network.states(rows[:, :-1]), rows[:, 1:]
    there = (right > 0) & (rows[:, :-1] > 0)
    return functional.cross_entropy(states[there] @ network.items.weight[1:].T, right[there] - 1)


def train(ratings: Ratings, how: str, steps: int, out: Path, sizes: dict[str, Any]) -> None:
    """Train on the training part of a split, and write the weights."""
    parts = split(ratings.users, ratings.times, how)
    histories = [one + 1 for one in sequences(ratings, parts == TRAIN)]
    repeatable()
    network = SASRec(len(ratings.item_names), **sizes, dropout=DROPOUT)
    started = time.process_time()

    def mark(step: int, late: float, averaged: nn.Module) -> None:
        print(f"step {step}: {time.process_time() - started:.0f} s, loss {late:.3f}", flush=True)

    plan = Plan(steps, rate=RATE, warm=50, decay=0.02, average=0.99, every=100)
    made = batches(histories, network.places.shape[0], 0)
    save(fit(network, partial(loss, network), made, plan, mark), out)
    print(f"{out}: {steps} steps on {sum(map(len, histories))} ratings of {len(ratings.user_names)} people")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that training and exporting share."""
    add_version(parser)
    parser.add_argument("--data_path", default=DATA, help=f"ratings (default: {DATA})")
    parser.add_argument("--split", default="leave_one_out", choices=("leave_one_out", "temporal", "random"))
    parser.add_argument("--steps", type=int, default=STEPS, help=f"batches of the training (default: {STEPS})")
    for name, about in (
        ("history", "places"),
        ("width", "numbers per item"),
        ("layers", "blocks"),
        ("heads", "of each"),
    ):
        parser.add_argument(f"--{name}", type=int, help=f"{about} (default: as model.py has it)")


def sizes_of(args: argparse.Namespace) -> dict[str, int]:
    """Return the sizes of the network from the flags."""
    named = {name: getattr(args, name) for name in ("history", "width", "layers", "heads")}
    return {name: value for name, value in named.items() if value is not None}


def name_of(how: str) -> str:
    """Return the name of the files of a split."""
    return "sasrec" if how == "leave_one_out" else f"sasrec_{how}"


def main() -> int:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    parser.add_argument("--out", type=Path, help="(default: sasrec.pth; sasrec_SPLIT.pth of another split)")
    args = parser.parse_args()
    out = args.out or HERE / f"{name_of(args.split)}.pth"
    train(read_ratings(args.data_path), args.split, args.steps, out, sizes_of(args))
    return 0


if __name__ == "__main__":
    cli.run(main)
