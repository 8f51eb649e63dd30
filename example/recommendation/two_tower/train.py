"""Train both towers on the films that users of MovieLens-100K rated, in order of time, and write two_tower.pth.

The ratings are fetched; neither they nor weights trained on them may be redistributed: git ignores both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, DataError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.tabular.histories import sequences
from utils.datasets.tabular.ratings import Ratings, read_ratings
from utils.datasets.tabular.splits import TRAIN, split
from utils.pipeline import cli
from utils.preprocess.features import Features
from utils.tasks.item_recommendation.index import ID

with needed(__file__):
    import torch
    from model import HISTORY, WIDTH, Item, Query
    from torch import nn
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
DATA = "fetch:ml_100k"
STEPS, BATCH, RATE, DROPOUT = 1000, 512, 0.005, 0.3
"""A single setting; no hyperparameters were searched."""

PEOPLE = ({"name": "age", "step": 5}, {"name": "gender"}, {"name": "occupation"})
"""Features of users; the age in steps of 5 years."""


class Example(NamedTuple):
    """Histories, B x L int64 padded with zeros at the start, indices of the users, and indices of the next items."""

    history: torch.Tensor
    users: torch.Tensor
    right: torch.Tensor


class Towers(nn.Module):
    """Both towers, with the features of all users (U x 3 int64) and items (M x 2 int64, M x G float32).

    Args:
        features: of users and of items. ratings: with all of them. history, width: sizes.
    """

    people: torch.Tensor
    ids: torch.Tensor
    genres: torch.Tensor

    def __init__(self, features: tuple[Features, Features], ratings: Ratings, history: int, width: int) -> None:
        super().__init__()
        people, items = encoded(features, ratings)
        rows = sum(field.rows for field in features[0].fields)
        self.query = Query(len(ratings.item_names), rows, history, width, DROPOUT)
        self.item = Item(sum(field.rows for field in features[1].fields), items["genres"].shape[1], width)
        for name, array in (("people", people["user"]), ("ids", items["item"]), ("genres", items["genres"])):
            self.register_buffer(name, torch.from_numpy(array), persistent=False)


def features_of(ratings: Ratings, parts: Array) -> tuple[Features, Features]:
    """Return the features of users and of items, fitted on the training part.

    Raises:
        DataError: the data set lacks a field.
    """
    for kind, fields, wanted in (
        ("user", ratings.user_fields, [one["name"] for one in PEOPLE]),
        ("item", ratings.item_fields, ["genres", "year"]),
    ):
        lost = [name for name in wanted if name not in fields]
        if lost:
            raise DataError(
                f"{ratings.files[0]}: nothing tells the {', '.join(lost)} of a {kind}; put the file beside it"
            )
    people: list[dict[str, Any]] = []
    offset = 0
    for one in PEOPLE:
        field = {**one, "input": "user", "kind": "vocabulary", "offset": offset}
        field["values"] = _values(field, ratings.user_fields[str(one["name"])])
        offset += len(field["values"]) + 1
        people.append(field)
    known = [ratings.item_names[place] for place in np.unique(ratings.items[parts == TRAIN]).tolist()]
    genres = sorted({one for text in ratings.item_fields["genres"] for one in text.split("|") if one})
    decade = {"name": "year", "letters": 3, "input": "item", "kind": "vocabulary", "offset": len(known) + 1}
    items = [
        {"name": ID, "input": "item", "kind": "vocabulary", "values": known},
        {**decade, "values": _values(decade, ratings.item_fields["year"])},
        {"name": "genres", "input": "genres", "kind": "multi", "values": genres},
    ]
    return Features.from_json({"fields": people}), Features.from_json({"fields": items})


def _values(field: dict[str, Any], texts: Sequence[str]) -> list[str]:
    """Return the distinct values of a column in the format of a feature field."""
    (one,) = Features.from_json({"fields": [{**field, "values": ["-"]}]}).fields
    return sorted({one.key(text) for text in texts if text})


def encoded(features: tuple[Features, Features], ratings: Ratings) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the inputs of the towers for all users and all items."""
    people = [{key: column[i] for key, column in ratings.user_fields.items()} for i in range(len(ratings.user_names))]
    items = [
        {ID: name, **{key: column[i] for key, column in ratings.item_fields.items()}}
        for i, name in enumerate(ratings.item_names)
    ]
    return features[0].encoded(people), features[1].encoded(items)


def batches(histories: Sequence[Array], places: int, seed: int) -> Iterator[Example]:
    """Yield examples: the next item is drawn uniformly from a history without its first item."""
    pairs = np.array([(user, at) for user, own in enumerate(histories) for at in range(1, len(own))], np.int64)
    if not len(pairs):
        raise DataError("no user has two ratings in the training part; there is nothing to learn from")
    chance = np.random.default_rng(seed)
    while True:
        rows, right = np.zeros((BATCH, places), np.int64), np.zeros(BATCH, np.int64)
        some = pairs[chance.integers(len(pairs), size=BATCH)]
        for place, (user, at) in enumerate(some.tolist()):
            piece = histories[user][max(0, at - places) : at] + 1
            rows[place, places - len(piece) :] = piece
            right[place] = histories[user][at]
        yield Example(*map(torch.from_numpy, (rows, some[:, 0].copy(), right)))


def loss(towers: Towers, batch: Example) -> torch.Tensor:
    """Return the cross entropy of the next item, over all items."""
    queries = towers.query(batch.history, towers.people[batch.users])
    return functional.cross_entropy(queries @ towers.item(towers.ids, towers.genres).T, batch.right)


def train(ratings: Ratings, how: str, steps: int, out: Path, sizes: dict[str, int]) -> None:
    """Train on the training part of a split, and write the weights of both towers."""
    parts = split(ratings.users, ratings.times, how)
    histories = sequences(ratings, parts == TRAIN)
    repeatable()
    towers = Towers(features_of(ratings, parts), ratings, **sizes)
    started = time.process_time()

    def mark(step: int, late: float, averaged: nn.Module) -> None:
        print(f"step {step}: {time.process_time() - started:.0f} s, loss {late:.3f}", flush=True)

    plan = Plan(steps, rate=RATE, warm=50, decay=0.02, average=0.99, every=200)
    made = batches(histories, sizes["history"], 0)
    save(fit(towers, partial(loss, towers), made, plan, mark), out)
    print(f"{out}: {steps} steps on {sum(map(len, histories))} ratings of {len(ratings.user_names)} people")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that training and exporting share."""
    add_version(parser)
    parser.add_argument("--data_path", default=DATA, help=f"ratings (default: {DATA})")
    parser.add_argument("--split", default="leave_one_out", choices=("leave_one_out", "temporal", "random"))
    parser.add_argument("--steps", type=int, default=STEPS, help=f"batches of the training (default: {STEPS})")
    parser.add_argument("--history", type=int, default=HISTORY, help=f"places (default: {HISTORY})")
    parser.add_argument("--width", type=int, default=WIDTH, help=f"numbers of a vector (default: {WIDTH})")


def name_of(how: str) -> str:
    """Return the name of the files of a split."""
    return "two_tower" if how == "leave_one_out" else f"two_tower_{how}"


def main() -> int:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    parser.add_argument("--out", type=Path, help="(default: two_tower.pth; two_tower_SPLIT.pth of another split)")
    args = parser.parse_args()
    out, sizes = args.out or HERE / f"{name_of(args.split)}.pth", {"history": args.history, "width": args.width}
    train(read_ratings(args.data_path), args.split, args.steps, out, sizes)
    return 0


if __name__ == "__main__":
    cli.run(main)
