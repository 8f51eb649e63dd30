"""Sample texts of text classification: short reviews put together from lists of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

WORDS = {
    "negative": ["awful", "boring", "clumsy", "dull", "flat", "noisy", "weak", "wooden"],
    "positive": ["bright", "charming", "clever", "funny", "lovely", "moving", "superb", "warm"],
}
"""Words of each class."""

THINGS = ["acting", "camera", "cast", "dialogue", "ending", "film", "music", "plot", "score", "story"]

TEXTS = 80

NEGATED = 20
"""One text in this number has a negation, for which counting words fails."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write texts to ``data/val.tsv``, with labels, and to ``data/texts.txt``; return words for the templates."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    labels = list(WORDS)
    rows = [(_text(labels[i % 2], i % NEGATED == NEGATED - 1, chance), labels[i % 2]) for i in range(TEXTS)]
    table = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    (folder / "data" / "val.tsv").write_text(table, encoding="utf-8")
    plain = "".join(f"{_text(label, False, chance)}\n" for label in labels * 4)
    (folder / "data" / "texts.txt").write_text(plain, encoding="utf-8")
    words = {label: " ".join(found) for label, found in WORDS.items()}
    return {**words, "things": " ".join(THINGS), "texts": str(TEXTS)}


def _text(label: str, negated: bool, chance: np.random.Generator) -> str:
    """Return a text in which the words of a class outnumber the other's, 4 to 29 words long."""
    (other,) = (name for name in WORDS if name != label)
    if negated:
        return f"The {_one(THINGS, chance)} was not {_one(WORDS[other], chance)}."
    most = int(chance.integers(1, 5))
    sides = [label] * most + [other] * int(chance.integers(0, min(most, 3)))
    parts = [f"{_one(THINGS, chance)} was {_one(WORDS[side], chance)}" for side in chance.permutation(sides)]
    return f"The {', and the '.join(parts)}!"


def _one(words: Sequence[str], chance: np.random.Generator) -> str:
    return words[int(chance.integers(0, len(words)))]


"""A classifier that counts words through an embedding table."""
