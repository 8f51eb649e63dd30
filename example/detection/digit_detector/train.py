"""Train the digit detector on scenes composed as it goes: seeded, one thread, the same weights every time.

The first stage uses scenes with smaller and fainter digits than the held-out ones, the second one scenes like the
held-out ones, but with ink that may have the colour of its background; the weight of the box loss increases.

The scenes hold 1437 handwritten digits and eight photographs; the held-out scenes in ``data`` hold others and are only
ever used to print the mAP, never to choose anything. Each mark saves the weights of its step next to the final ones.
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
from utils.datasets.image.boxes import load_boxes
from utils.datasets.synthetic.digit_scenes import CLEARER, HARDER, Scene, training_batches
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.pipeline import cli
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.images import open_image

with needed(__file__):
    import torch
    from model import STRIDE, DigitDetector, centres
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
MEAN, STD = 0.5, 0.25
"""Mean and standard deviation of samples in 0..1, for all channels; the network's input is (sample - MEAN) / STD."""

STAGES = (
    (HARDER, 1.5, Plan(6000, rate=0.002)),
    (CLEARER, 4.0, Plan(6000, rate=0.0015)),
)
"""Of each stage: the scenes, the weight of the box loss, the number of steps and the learning rate."""

BATCH = 8
FRESH = 2
"""New scenes per batch; the other scenes are reused from earlier batches."""

REACH = 12.0
"""Largest distance in pixels, along each axis, from a box's centre to the centre of a cell that is its positive."""

LABELS = tuple(str(digit) for digit in range(10))


def to_input(images: Sequence[Array]) -> torch.Tensor:
    """Return H x W x 3 uint8 images as the network's input, N x 3 x H x W."""
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return (x.float() / 255 - MEAN) / STD


def padded(scenes: Sequence[Scene]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return boxes (N x M x 4, NaN where a scene has fewer) and digits (N x M) of a batch."""
    most = max(1, *(len(scene.labels) for scene in scenes))
    boxes, labels = torch.full((len(scenes), most, 4), torch.nan), torch.zeros(len(scenes), most, dtype=torch.int64)
    for row, scene in enumerate(scenes):
        boxes[row, : len(scene.boxes)] = torch.from_numpy(scene.boxes.astype(np.float32))
        labels[row, : len(scene.labels)] = torch.from_numpy(scene.labels)
    return boxes, labels


def assigned(boxes: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which cells are positive, N x Q, and the index of the box of each, N x Q.

    A cell is assigned to the box with the nearest centre, if the cell's centre is within reach and inside the box. For
    a box thinner than a cell, the cells that it may lie in are positive.
    """
    middle, half = (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]) / 2
    away = (points[None, :, None] - middle[:, None]).abs()  # N x Q x M x 2
    inside = (away <= half.clamp(min=STRIDE / 2)[:, None]).all(dim=-1) & (away.amax(dim=-1) < REACH)
    nearest, which = torch.where(inside, away.amax(dim=-1), torch.inf).min(dim=-1)
    return nearest.isfinite(), which


def overlap(found: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the intersection over union of P pairs of boxes, and GIoU (Rezatofighi et al., 2019)."""
    common = (torch.minimum(found[:, 2:], wanted[:, 2:]) - torch.maximum(found[:, :2], wanted[:, :2])).clamp(0).prod(-1)
    union = (found[:, 2:] - found[:, :2]).prod(-1) + (wanted[:, 2:] - wanted[:, :2]).prod(-1) - common
    hull = (torch.maximum(found[:, 2:], wanted[:, 2:]) - torch.minimum(found[:, :2], wanted[:, :2])).prod(-1)
    shared = common / union
    return shared, shared - (hull - union) / hull


def loss(network: DigitDetector, weight: float, scenes: Sequence[Scene]) -> torch.Tensor:
    """Return the loss of a batch.

    Objectness: quality focal loss (Li et al., 2020), whose target is the overlap of the predicted box. Class: cross
    entropy. Box: GIoU and the distance of the edges, times ``weight``.
    """
    boxes, labels = padded(scenes)
    x = to_input([scene.image for scene in scenes])
    found, there, which = network.raw(x)
    learns, nearest = assigned(boxes, centres(x)[0].flatten(1).T)
    rows, cells = learns.nonzero(as_tuple=True)
    chosen = nearest[rows, cells]
    mine, wanted = found[rows, cells], boxes[rows, chosen]
    shared, giou = overlap(mine, wanted)
    quality = torch.zeros_like(there[..., 0])
    quality[rows, cells] = shared.detach().clamp(0.3, 1)
    wrong = (torch.sigmoid(there[..., 0].detach()) - quality).square()
    focal = functional.binary_cross_entropy_with_logits(there[..., 0], quality, reduction="none") * wrong
    digit = functional.cross_entropy(which[rows, cells], labels[rows, chosen], label_smoothing=0.05)
    box = (1 - giou).mean() * 2 + functional.l1_loss(mine, wanted) * 0.1
    return focal.sum() / len(rows) * 4 + digit + box * weight


@torch.no_grad()
def evaluate(network: torch.nn.Module, limit: int | None = None) -> tuple[float, float]:
    """Return mAP and mAP50 on the held-out scenes, or on the first ``limit`` of them."""
    data = load_boxes(HERE / "data" / "val.json")
    metric = MeanAveragePrecision(LABELS)
    images = data.samples[:limit]
    for start in range(0, len(images), 20):
        batch = images[start : start + 20]
        boxes, scores = network(to_input([np.asarray(open_image(path)) for path in batch]))
        metric.update(
            [detections(*one) for one in zip(boxes.numpy(), scores.numpy(), strict=True)],
            data.targets[start : start + len(batch)],
        )
    return metric.compute(), metric.secondary()["mAP50"]


def detections(boxes: Array, scores: Array) -> Detections:
    """Return the detections of the example scripts in one image, with their default settings for the metric."""
    cells, classes = np.nonzero(scores >= 0.001)
    found = Detections(boxes[cells].clip(0).astype(np.float64), scores[cells, classes].astype(np.float64), classes)
    return non_maximum_suppression(found, 0.5, 100)


def main() -> int:
    """Train, print the held-out mAP and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_detector.pth")
    out = parser.parse_args().out
    repeatable()
    network: torch.nn.Module = DigitDetector().to(memory_format=torch.channels_last)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, out)
        value, at_half = evaluate(averaged, 100)
        minutes = (time.process_time() - started) / 60
        print(
            f"step {step}: {minutes:.1f} min, loss {late:.3f}, mAP {value:.4f}, mAP50 {at_half:.4f} of 100", flush=True
        )

    for seed, (recipe, weight, plan) in enumerate(STAGES, start=1):
        batches = training_batches(seed, BATCH, FRESH, recipe=recipe)
        network = fit(network, partial(loss, network, weight), batches, plan, mark)
    value, at_half = evaluate(network)
    print(f"{out}: mAP {value:.6f}, mAP50 {at_half:.6f} on the held-out scenes")
    return 0


if __name__ == "__main__":
    cli.run(main)
