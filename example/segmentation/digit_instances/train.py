"""Train the masks of digits on scenes composed as it goes: seeded, one thread, the same weights every time.

The detector's layers are those of ``digit_detector.pth`` and stay as they are; only prototypes and coefficients are
trained, on the scenes of the detector's second stage. The held-out scenes in ``data`` hold other digits and photographs
and are only ever used to print the metric. Each mark saves the weights of its step over the previous ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.image.instances import load_instances
from utils.datasets.synthetic.digit_scenes import CLEARER, Scene, training_batches
from utils.metrics.detection.masks import MaskAveragePrecision
from utils.pipeline import cli
from utils.postprocess.image.instances import Instances, candidates_of, kept_masks, of_prototypes, suppressed
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import fit as placed

with needed(__file__):
    import torch
    from model import STRIDE, DigitInstances
    from torch.nn import functional

    from utils.export.networks.digit_detector import centres, load_detector
    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
MEAN, STD = 0.5, 0.25
"""Mean and standard deviation of samples in 0..1, for all channels; the network's input is (sample - MEAN) / STD."""

PLAN = Plan(1200, rate=0.003, average=0.99, stop=500)
BATCH = 8
FRESH = 1
"""New scenes per batch; the other scenes have been used up to seven times before."""

REACH = 8.0
"""Largest distance in pixels, along each axis, from a box's centre to the centre of a cell that learns its mask."""

MARGIN = 2
"""Pixels around a box whose mask is learnt too, because predicted boxes are not exact."""

LABELS = tuple(str(digit) for digit in range(10))
START = HERE.parents[1] / "detection" / "digit_detector" / "digit_detector.pth"
"""File of the detector's weights."""


def to_input(images: Sequence[Array]) -> torch.Tensor:
    """Return H x W x 3 uint8 images as the network's input, N x 3 x H x W."""
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return (x.float() / 255 - MEAN) / STD


def loss(network: DigitInstances, scenes: Sequence[Scene]) -> torch.Tensor:
    """Return cross entropy and Dice (Milletari et al., 2016) of the masks within their boxes, for the nearest cells."""
    *_, rows, found = network.raw(x := to_input([scene.image for scene in scenes]))
    cells = centres(x)[0].flatten(1).T
    total, count = torch.zeros(()), 0
    for row, scene in enumerate(scenes):
        for place, box in enumerate(scene.boxes.tolist()):
            middle = torch.tensor([box[0] + box[2], box[1] + box[3]]) / 2
            near = ((cells - middle).abs().amax(dim=1) < REACH).nonzero()[:, 0]
            left, top = (max(0, edge - MARGIN) // STRIDE for edge in box[:2])
            right, bottom = (
                -(-min(side, edge + MARGIN) // STRIDE) for edge, side in zip(box[2:], x.shape[:1:-1], strict=True)
            )
            ink = scene.shows[top * STRIDE : bottom * STRIDE, left * STRIDE : right * STRIDE] == place
            wanted = functional.avg_pool2d(torch.from_numpy(ink.astype(np.float32))[None], STRIDE)
            logits = (rows[row, near] @ found[row, :, top:bottom, left:right].flatten(1)).unflatten(1, wanted.shape[1:])
            wanted = wanted.expand_as(logits)
            sure = torch.sigmoid(logits)
            dice = 1 - (2 * (sure * wanted).sum(dim=(1, 2)) + 1) / ((sure + wanted).sum(dim=(1, 2)) + 1)
            total = total + functional.binary_cross_entropy_with_logits(logits, wanted) + dice.mean()
            count += 1
    return total / max(count, 1)


@torch.no_grad()
def evaluate(network: torch.nn.Module, limit: int | None = None) -> tuple[float, float]:
    """Return mask mAP and mAP50 on the held-out scenes, or on the first ``limit`` of them."""
    data = load_instances(HERE / "data" / "val.json")
    metric = MaskAveragePrecision(LABELS)
    images = data.samples[:limit]
    for start in range(0, len(images), 20):
        batch = images[start : start + 20]
        rows, found = network(to_input([np.asarray(open_image(one.image)) for one in batch]))
        answers = [answer(*one) for one in zip(rows.numpy(), found.numpy(), strict=True)]
        truths = zip(data.targets[start : start + len(batch)], batch, answers, strict=True)
        metric.update(answers, [target._replace(masks=one.masks(made.size)) for target, one, made in truths])
    return metric.compute(), metric.secondary()["mAP50"]


def answer(rows: Array, prototypes: Array) -> Instances:
    """Return the objects of the example scripts in one image, with their default settings for the metric."""
    size = prototypes.shape[1] * STRIDE, prototypes.shape[2] * STRIDE
    geometry = placed(size[1], size[0], size)
    found = suppressed(candidates_of(rows, len(LABELS), 0.001), 0.5, 100)
    return kept_masks(of_prototypes(found, prototypes, geometry, size))


def main() -> int:
    """Train, print the held-out metric and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_instances.pth")
    parser.add_argument("--start", type=Path, default=START, help="weights of the digit detector")
    args = parser.parse_args()
    repeatable()
    network = DigitInstances()
    load_detector(network.detector, args.start)
    network = network.to(memory_format=torch.channels_last)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        value, at_half = evaluate(averaged, 40)
        print(
            f"step {step}: {minutes:.1f} min, loss {late:.3f}, mAP {value:.4f}, mAP50 {at_half:.4f} of 40", flush=True
        )

    batches = training_batches(12, BATCH, FRESH, recipe=CLEARER)
    averaged = fit(network, partial(loss, network), batches, PLAN, mark)
    value, at_half = evaluate(averaged)
    print(f"{args.out}: mask mAP {value:.6f}, mAP50 {at_half:.6f} on the held-out scenes")
    return 0


if __name__ == "__main__":
    cli.run(main)
