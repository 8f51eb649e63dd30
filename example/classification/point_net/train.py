"""Train the network of point clouds: seeded, one thread, the same weights every time; about a minute of one core.

Clouds are drawn for every batch. The held-out ones are only used to print the accuracy.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from clouds import LABELS, clouds, held_out

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import PointNet
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
BATCH = 64
PLAN = Plan(1500, rate=0.004, warm=50, clip=5.0, average=0.99, every=500)
Batch = tuple[torch.Tensor, torch.Tensor]


def batches() -> Iterator[Batch]:
    """Yield clouds and their classes without end."""
    chance = np.random.default_rng(0)
    while True:
        points, labels = clouds(BATCH, chance)
        yield torch.from_numpy(points), torch.from_numpy(labels)


def main() -> int:
    """Train, print the held-out accuracy and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "point_net.pth")
    args = parser.parse_args()
    repeatable()
    points, labels = map(torch.from_numpy, held_out())
    network: torch.nn.Module = PointNet(len(LABELS))
    started = time.process_time()

    @torch.no_grad()
    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        right = (averaged(points).argmax(dim=1) == labels).float().mean().item()
        minutes = (time.process_time() - started) / 60
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, accuracy {right:.4f}", flush=True)

    network = fit(
        network, lambda batch, one=network: functional.cross_entropy(one(batch[0]), batch[1]), batches(), PLAN, mark
    )
    save(network, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
