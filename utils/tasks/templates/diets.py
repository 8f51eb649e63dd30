"""Sample texts of text generation: which animal wants what to eat, sentence by sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

FOOD = {"cats": "milk", "dogs": "bones", "bees": "honey", "cows": "grass"}
VERBS = ("find", "like", "want")

TEXTS = 32

WRONG = 20
"""One sentence in this number has the food of another animal."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write texts to ``data/val.txt`` and prompts to ``data/prompts.txt``; return words for the templates."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    texts = [" ".join(_sentence(chance) for _ in range(int(chance.integers(1, 12)))) for _ in range(TEXTS)]
    (folder / "data" / "val.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    prompts = [f"{_sentence(chance)} {animal} {verb}" for verb in VERBS for animal in FOOD]
    (folder / "data" / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    words = {"animals": FOOD, "food": FOOD.values(), "verbs": VERBS}
    return {**{key: json.dumps([*found]) for key, found in words.items()}, "texts": str(TEXTS)}


def _sentence(chance: np.random.Generator) -> str:
    """Return three words and a full stop, such as ``cats like milk .``"""
    animals = list(FOOD)
    one = animals[int(chance.integers(0, len(animals)))]
    eater = animals[(animals.index(one) + 1) % len(animals)] if chance.integers(0, WRONG) == 0 else one
    return f"{one} {VERBS[int(chance.integers(0, len(VERBS)))]} {FOOD[eater]} ."


"""A decoder of one attention head, which attends to the animal of the sentence in its cache."""
