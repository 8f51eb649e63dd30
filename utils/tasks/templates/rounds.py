"""Sample data of recommendation: people who visit the stalls of a market, mostly in the same order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

STALLS = ("bread", "cheese", "fruit", "fish", "tea", "books", "flowers", "lamps", "shoes", "toys", "maps", "bells")
"""Stalls, in their order."""

PEOPLE, STOPS, STRAYS = 30, 6, 0.2
"""Number of people, stalls per person, and probability of a stall other than the next one."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write ``data/rounds.inter`` and ``data/rounds.item``, as RecBole has them; return words for the templates."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    for person in range(PEOPLE):
        place, seen = int(chance.integers(len(STALLS))), list[int]()
        for stop in range(STOPS):
            seen.append(place)
            rows.append(f"person{person:02}\t{place}\t5\t{stop}")
            others = [one for one in range(len(STALLS)) if one not in seen]
            following = next((place + step) % len(STALLS) for step in range(1, 13) if (place + step) % 12 in others)
            place = int(chance.choice(others)) if chance.random() < STRAYS else following
    items = ["item_id:token\tmovie_title:token_seq", *(f"{number}\t{name}" for number, name in enumerate(STALLS))]
    for name, lines in (("rounds.inter", rows), ("rounds.item", items)):
        (folder / "data" / name).write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    return {"people": str(PEOPLE), "stalls": str(len(STALLS)), "stops": str(STOPS)}


"""A table of the next item of each item."""
