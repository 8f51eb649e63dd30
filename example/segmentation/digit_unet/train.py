"""Train the digit segmenter on scenes composed as it goes: seeded, one thread, the same weights every time.

Its first layers are initialised from the digit detector, which was trained on the same digits.
The scenes hold 1437 handwritten digits and eight photographs; the held-out scenes in ``data`` hold others and are only
ever used to print the mIoU, never to choose anything. Each mark saves the weights of its step over the previous ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.digit_scenes import Scene, training_batches
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import DIGITS, DigitUNet
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
MEAN, STD = 0.5, 0.25
"""Mean and standard deviation of samples in 0..1, for all channels; the network's input is (sample - MEAN) / STD."""

PLAN = Plan(3000, rate=0.002)
BATCH = 8
FRESH = 1
"""New scenes per batch; the other scenes have been used up to seven times before."""

CLASSES = DIGITS + 1
START = HERE.parents[1] / "detection" / "digit_detector" / "digit_detector.pth"
"""File of the detector's weights."""


def start(network: DigitUNet, path: Path) -> int:
    """Copy the detector's weights to the layers that both networks have; return the number of tensors copied."""
    found, own = torch.load(path, weights_only=True), network.state_dict()
    shared = {name: value for name, value in found.items() if name in own}
    network.load_state_dict(own | shared)
    return len(shared)


def to_input(images: Sequence[Array]) -> torch.Tensor:
    """Return H x W x 3 uint8 images as the network's input, N x 3 x H x W."""
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return (x.float() / 255 - MEAN) / STD


def loss(network: DigitUNet, scenes: Sequence[Scene]) -> torch.Tensor:
    """Return cross entropy and Dice (Milletari et al., 2016) of the ink, plus cross entropy of the digits on ink."""
    wanted = torch.from_numpy(np.stack([scene.mask for scene in scenes])).long()
    ink, digit = network.raw(to_input([scene.image for scene in scenes]))
    is_ink = (wanted > 0).float()
    sure = torch.sigmoid(ink[:, 0])
    common, both = (sure * is_ink).sum(dim=(1, 2)), (sure + is_ink).sum(dim=(1, 2))
    dice = 1 - ((2 * common + 1) / (both + 1)).mean()
    where = functional.binary_cross_entropy_with_logits(ink[:, 0], is_ink)
    logits = digit.permute(0, 2, 3, 1)[wanted > 0]
    which = functional.cross_entropy(logits, wanted[wanted > 0] - 1, label_smoothing=0.05)
    return where + dice + which


@torch.no_grad()
def evaluate(network: torch.nn.Module, limit: int | None = None) -> tuple[float, float]:
    """Return mIoU and pixel accuracy on the held-out scenes, or on the first ``limit`` of them."""
    counts = np.zeros((CLASSES, CLASSES), np.int64)
    paths = sorted((HERE / "data" / "val" / "images").glob("*.jpg"))[:limit]
    for start in range(0, len(paths), 10):
        batch = paths[start : start + 10]
        found = network(to_input([_pixels(path) for path in batch])).argmax(dim=1).numpy()
        wanted = np.stack([_pixels(path.parents[1] / "masks" / f"{path.stem}.png") for path in batch])
        counts += np.bincount((wanted.astype(np.int64) * CLASSES + found).ravel(), minlength=CLASSES**2).reshape(
            counts.shape
        )
    right = counts.diagonal()
    return float((right / (counts.sum(axis=0) + counts.sum(axis=1) - right)).mean()), float(right.sum() / counts.sum())


def _pixels(path: Path) -> Array:
    with Image.open(path) as image:
        return np.array(image)


def main() -> int:
    """Train, print the held-out mIoU and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_unet.pth")
    parser.add_argument("--start", type=Path, default=START, help="weights of the digit detector")
    args = parser.parse_args()
    repeatable()
    network = DigitUNet().to(memory_format=torch.channels_last)
    print(f"{args.start}: {start(network, args.start)} tensors to start from")
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        value, _ = evaluate(averaged, 100)
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, mIoU {value:.4f} of 100 scenes", flush=True)

    batches = training_batches(5, BATCH, FRESH)
    averaged = fit(network, lambda scenes: loss(network, scenes), batches, PLAN, mark)
    save(averaged, args.out)
    value, pixels = evaluate(averaged)
    print(f"{args.out}: mIoU {value:.6f}, pixel accuracy {pixels:.6f} on the held-out scenes")
    return 0


if __name__ == "__main__":
    cli.run(main)
