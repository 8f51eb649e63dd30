"""Train the digits network: seeded, about a minute on two CPU cores, the same weights every time.

Trains on 1437 of scikit-learn's digits; the other 360 (``make_data.py`` has the split) are only ever used to print the
accuracy at the end, never to choose anything. The images go through the shared classification preprocessing with
resize 32 and crop 32, so the network sees in training exactly what the three example scripts give it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.preprocess.pytorch.classification import preprocess

with needed(__file__):
    import torch
    from make_data import digits, split
    from model import DigitsNet
    from torch.nn import functional

EPOCHS = 40
BATCH = 64
PEAK_RATE = 0.01
MAX_SHIFT = 4
"""Largest shift in pixels of the 32 x 32 image: one pixel of the 8 x 8 original."""


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the preprocessed training images, their digits, and the same for the held-out ones."""
    images, labels = digits()
    train, held_out = split(labels)
    x = torch.from_numpy(preprocess(images, dtype="float32", resize_shape=32, crop_shape=32))
    y = torch.from_numpy(labels.astype(np.int64))
    return x[train], y[train], x[held_out], y[held_out]


def shifted(x: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return every image moved by its own random whole-pixel shift; the edge is repeated."""
    padded = functional.pad(x, [MAX_SHIFT] * 4, mode="replicate")
    down, right = torch.randint(0, 2 * MAX_SHIFT + 1, (2, len(x)), generator=generator).tolist()
    size = x.shape[-1]
    moved = [p[:, d : d + size, r : r + size] for p, d, r in zip(padded, down, right, strict=True)]
    return torch.stack(moved)


def train(x: torch.Tensor, y: torch.Tensor) -> DigitsNet:
    """Return the network after ``EPOCHS`` passes of AdamW with a one-cycle learning rate."""
    model = DigitsNet().train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    steps = -(-len(x) // BATCH)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, epochs=EPOCHS, steps_per_epoch=steps)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(x)).split(BATCH):
            loss = functional.cross_entropy(model(shifted(x[chosen])), y[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
    return model.eval()


def main() -> None:
    """Train, print the held-out accuracy and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "digits.pth")
    out = parser.parse_args().out
    torch.manual_seed(0)
    torch.set_num_threads(2)  # sums are split by thread: another count gives slightly different weights
    torch.use_deterministic_algorithms(True)
    x, y, held_out_x, held_out_y = load()
    model = train(x, y)
    with torch.no_grad():
        right = (model(held_out_x).argmax(1) == held_out_y).float().mean().item()
    with out.open("wb") as file:  # with a path, torch would store the file name in the file
        torch.save(model.state_dict(), file)
    print(f"{out}: top-1 {right:.4f} on {len(held_out_y)} held-out images")


if __name__ == "__main__":
    main()
