"""Write data/val.csv and data/rows.csv: synthetic clicks of the users of a shop.

The log odds of a click are the inner product of a vector of the user and a vector of the item, plus terms for hour,
device and price. Because the odds are known, the highest possible AUC is known too.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent
PEOPLE, THINGS, TASTES = 160, 120, 3
NEWCOMERS = 4
"""The last users, who are not in the training rows."""

TRAINING, HELD_OUT, LOOK = 40000, 4000, 8
WORLD, TRAIN_SEED, VAL_SEED = 7, 11, 12

COLOURS = ("black", "blue", "green", "red", "white", "yellow")
CATEGORIES = {
    "kitchen": ("bowl", "kettle", "pan", "toaster"),
    "garden": ("hose", "rake", "shears", "spade"),
    "sport": ("ball", "bike", "racket", "skis"),
    "books": ("atlas", "diary", "novel", "reader"),
}
TAGS = ("new", "sale", "handmade", "eco")
DEVICES = {"phone": 0.3, "tablet": 0.0, "desktop": -0.3}
HEAD = ("label", "user_id", "age", "item_id", "title", "category", "tags", "price", "device", "hour")


class World(NamedTuple):
    """Users and items: the features, the vector and the bias of each."""

    people: list[dict[str, str]]
    tastes: np.ndarray
    things: list[dict[str, str]]
    places: np.ndarray
    appeal: np.ndarray


def world() -> World:
    """Return the shop, the same every time."""
    chance = np.random.default_rng(WORLD)
    tastes = chance.normal(size=(PEOPLE, TASTES))
    ages = np.clip(np.round(38 + 9 * tastes[:, 0] + chance.normal(scale=6, size=PEOPLE)), 16, 90).astype(int)
    people = [{"user_id": f"p{number:03}", "age": str(age)} for number, age in enumerate(ages)]
    centres = {name: chance.normal(scale=0.9, size=TASTES) for name in CATEGORIES}
    things, places, appeal = [], [], []
    for number in range(THINGS):
        category = list(CATEGORIES)[number % len(CATEGORIES)]
        kind = CATEGORIES[category][number // len(CATEGORIES) % 4]
        price = float(np.round(np.exp(chance.normal(3, 0.8)), 2))
        tags = [tag for tag in TAGS if chance.random() < 0.3]
        title = f"{COLOURS[int(chance.integers(len(COLOURS)))]} {kind} {number:03}"
        things.append(
            {
                "item_id": f"t{number:03}",
                "title": title,
                "category": category,
                "tags": "|".join(tags),
                "price": str(price),
            }
        )
        places.append(centres[category] + chance.normal(scale=0.5, size=TASTES))
        appeal.append(0.8 * ("sale" in tags) - 0.4 * (np.log1p(price) - 3) + chance.normal(scale=0.3))
    return World(people, tastes, things, np.array(places), np.array(appeal))


def rows_of(shop: World, count: int, seed: int, people: int) -> tuple[list[dict[str, str]], np.ndarray]:
    """Return rows of the first users, and the true click probability of each row, N float64."""
    chance = np.random.default_rng(seed)
    rows, odds = list[dict[str, str]](), []
    for _ in range(count):
        person, thing, hour = int(chance.integers(people)), int(chance.integers(THINGS)), int(chance.integers(24))
        device = list(DEVICES)[int(chance.integers(len(DEVICES)))]
        evening = 0.7 * (hour >= 18) * (shop.things[thing]["category"] in ("books", "sport"))
        logit = -0.9 + shop.tastes[person] @ shop.places[thing] + shop.appeal[thing] + evening + DEVICES[device]
        odds.append(1 / (1 + np.exp(-logit)))
        row = {**shop.people[person], **shop.things[thing], "device": device, "hour": str(hour)}
        if chance.random() < 0.05:
            row["age"] = ""  # missing for some people
        rows.append({"label": str(int(chance.random() < odds[-1])), **row})
    return rows, np.array(odds)


def write(rows: list[dict[str, str]], file: Path, head: tuple[str, ...] = HEAD) -> None:
    """Write rows as CSV."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, head, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """Write the held-out rows, and the unlabelled rows of one user."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of the tables")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    rows, _ = rows_of(world(), HELD_OUT, VAL_SEED, PEOPLE)
    write(rows, out / "val.csv")
    first = next(row["user_id"] for row in rows)
    look = [row for row in rows if row["user_id"] == first][:LOOK]
    write(look, out / "rows.csv", HEAD[1:])
    clicked = sum(row["label"] == "1" for row in rows)
    print(f"{out}: {len(rows)} rows, {clicked} clicked; {len(look)} of {first} for a look")
    return 0


if __name__ == "__main__":
    cli.run(main)
