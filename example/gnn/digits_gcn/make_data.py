"""Make the graph: scikit-learn's handwritten digits, each linked to its eight nearest neighbours."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

HERE = Path(__file__).resolve().parent
NEIGHBOURS = 8
LABELLED = 10
"""Labelled nodes of each class in the training set."""


def main() -> int:
    """Write the graph and print its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data" / "digits_graph.npz")
    args = parser.parse_args()
    images, classes = load_digits(return_X_y=True)
    x = (images / 16).astype(np.float16)  # sixteenths: nothing is lost
    nearest = kneighbors_graph(x.astype(np.float32), NEIGHBOURS).tocoo()
    edges = np.stack([nearest.col, nearest.row]).astype(np.int32)
    both = np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1)
    random = np.random.default_rng(0)
    chosen = [random.permutation(np.flatnonzero(classes == one))[:LABELLED] for one in range(10)]
    train = np.zeros(len(classes), bool)
    train[np.concatenate(chosen)] = True
    np.savez_compressed(
        args.out,
        x=x,
        edges=both,
        y=classes.astype(np.int8),
        train_mask=train,
        test_mask=~train,
        classes=np.array([str(digit) for digit in range(10)]),
        image=np.array([8, 8]),
    )
    print(f"{args.out}: {len(x)} nodes, {both.shape[1]} edges, {train.sum()} nodes with a known class")
    return 0


if __name__ == "__main__":
    cli.run(main)
