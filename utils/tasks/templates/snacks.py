"""Sample rows of click prediction: people with a taste, snacks with a kind, and clicks."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np

TASTES = ("sweet", "salty", "sour")
"""Kinds of snacks, and tastes of people."""

PEOPLE, SNACKS, ROWS = 24, 18, 480

LIKED, OTHER = 0.9, 0.15
"""Probabilities of a click on a snack that matches the taste, and on another one."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write rows to ``data/val.csv``, with labels, and to ``data/rows.csv``; return words for the templates."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    people = [f"person{number:02}" for number in range(PEOPLE)]
    snacks = [f"{TASTES[number % len(TASTES)]} snack {number:02}" for number in range(SNACKS)]
    rows = []
    for person, snack in zip(chance.integers(0, PEOPLE, ROWS), chance.integers(0, SNACKS, ROWS), strict=True):
        taken = chance.random() < (LIKED if person % len(TASTES) == snack % len(TASTES) else OTHER)
        rows.append([people[person], str(snack), snacks[snack], str(int(taken))])
    head = ["user_id", "item_id", "title", "label"]
    _write(folder / "data" / "val.csv", [head, *sorted(rows)])
    _write(
        folder / "data" / "rows.csv", [head[:3], *(["person00", str(number), snacks[number]] for number in range(9))]
    )
    return {"people": str(PEOPLE), "snacks": str(SNACKS), "rows": str(ROWS), "tastes": str(len(TASTES))}


def _write(file: Path, rows: list[list[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


"""A factorization machine of two tables of tastes."""
