"""Print BLEU and chrF of two baselines on data/val.tsv: the source itself, and the translation of the nearest prompt.

The nearest prompt of data/train.tsv is the one whose source has the highest chrF with the source to translate: what a
memory of phrases gives without translating.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from utils.datasets.text.parallel import load_pairs
from utils.metrics.text.translation import Bleu, ChrF, chrf, letter_counts
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Print a line per baseline."""
    train, held_out = (load_pairs({"data": HERE / "data" / name}) for name in ("train.tsv", "val.tsv"))
    known = [(one, two[0]) for one, two in zip(train.samples, train.targets or (), strict=True)]

    def nearest(text: str) -> str:
        scores = [chrf(np.array(letter_counts(one.lower(), text.lower()))) for one, _ in known]
        return known[int(np.argmax(scores))][1]

    found = {"the source itself": list(held_out.samples), "the nearest prompt": list(map(nearest, held_out.samples))}
    for name, texts in found.items():
        bleu, letters = Bleu(), ChrF()
        bleu.update(texts, held_out.targets or ())
        letters.update(texts, held_out.targets or ())
        print(f"{name}: BLEU {bleu.compute():.2f}, chrF {letters.compute():.2f}")
    return 0


if __name__ == "__main__":
    cli.run(main)
