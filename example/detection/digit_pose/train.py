"""Train the key points of digits on scenes composed as it goes: seeded, one thread, the same weights every time.

The detector's layers are those of ``digit_detector.pth`` and stay as they are; only the head for the points is trained,
on the scenes of the detector's second stage. The held-out scenes in ``data`` hold other digits and photographs and are
only ever used to print the metric. Each mark saves the weights of its step over the previous ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.image.coco_keypoints import load_keypoints
from utils.datasets.synthetic.digit_points import points_of
from utils.datasets.synthetic.digit_scenes import CLEARER, Scene, training_batches
from utils.metrics.detection.keypoints import KeypointAveragePrecision
from utils.pipeline import cli
from utils.postprocess.image.poses import Poses, poses_of_rows
from utils.preprocess.image.images import open_image

with needed(__file__):
    import torch
    from model import POINTS, DigitPose
    from torch.nn import functional

    from utils.export.networks.digit_detector import centres, load_detector
    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
MEAN, STD = 0.5, 0.25
"""Mean and standard deviation of samples in 0..1, for all channels; the network's input is (sample - MEAN) / STD."""

PLAN = Plan(1500, rate=0.003, average=0.99, stop=500)
BATCH = 8
FRESH = 1
"""New scenes per batch; the other scenes have been used up to seven times before."""

REACH = 12.0
"""Largest distance in pixels, along each axis, from a box's centre to the centre of a cell that learns its points."""

SIGMA = 0.1
"""Of every point in the object keypoint similarity of the loss; the metric has its default, 1 / 3."""

LABELS = tuple(str(digit) for digit in range(10))
START = HERE.parent / "digit_detector" / "digit_detector.pth"
"""File of the detector's weights."""


def to_input(images: Sequence[Array]) -> torch.Tensor:
    """Return H x W x 3 uint8 images as the network's input, N x 3 x H x W."""
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return (x.float() / 255 - MEAN) / STD


def with_points(batches: Iterator[list[Scene]]) -> Iterator[list[tuple[Scene, Array]]]:
    """Yield the scenes with their digits' points, M x 3 x 2, which are computed once per scene."""
    known: dict[int, tuple[Scene, Array]] = {}
    for batch in batches:
        for scene in batch:
            if id(scene) not in known or known[id(scene)][0] is not scene:
                rows = [points_of(scene.shows == place) for place in range(len(scene.labels))]
                known[id(scene)] = scene, np.array(rows).reshape(-1, POINTS, 2)
        yield [known[id(scene)] for scene in batch]


def loss(network: DigitPose, batch: Sequence[tuple[Scene, Array]]) -> torch.Tensor:
    """Return the loss of a batch: 1 - OKS and the distance of the labelled points, and whether a point is labelled."""
    *_, places, logits = network.raw(x := to_input([scene.image for scene, _ in batch]))
    cells = centres(x)[0].flatten(1).T
    found, sure, wanted, area = [], [], [], []
    for row, (scene, points) in enumerate(batch):
        for box, mine in zip(scene.boxes.tolist(), points, strict=True):
            middle = torch.tensor([box[0] + box[2], box[1] + box[3]]) / 2
            near = ((cells - middle).abs().amax(dim=1) < REACH).nonzero()[:, 0]
            found.append(places[row, near])
            sure.append(logits[row, near])
            wanted.append(torch.from_numpy(mine.astype(np.float32)).expand(len(near), POINTS, 2))
            area.append(torch.full((len(near), 1), float((box[2] - box[0]) * (box[3] - box[1]))))
    mine, target, size = torch.cat(found), torch.cat(wanted), torch.cat(area)
    known = ~target[..., 0].isnan()
    away = (mine - target.nan_to_num()).square().sum(dim=2)
    similar = torch.exp(-away / (2 * size * (2 * SIGMA) ** 2))
    far = torch.sqrt(away + 1e-6) / size.sqrt()
    there = functional.binary_cross_entropy_with_logits(torch.cat(sure), known.float())
    return (1 - similar + far)[known].mean() + 0.3 * there


@torch.no_grad()
def evaluate(network: torch.nn.Module, limit: int | None = None) -> tuple[float, float]:
    """Return OKS-AP and AP50 on the held-out scenes, or on the first ``limit`` of them."""
    data = load_keypoints(HERE / "data" / "val.json")
    metric = KeypointAveragePrecision(LABELS)
    images = data.samples[:limit]
    for start in range(0, len(images), 20):
        batch = images[start : start + 20]
        rows = network(to_input([np.asarray(open_image(one.image)) for one in batch])).numpy()
        metric.update([answer(one) for one in rows], data.targets[start : start + len(batch)])
    return metric.compute(), metric.secondary()["AP50"]


def answer(rows: Array) -> Poses:
    """Return the poses of the example scripts in one image, with their default settings for the metric."""
    return poses_of_rows(rows, len(LABELS), 0.001).suppressed(0.5, 20)


def main() -> int:
    """Train, print the held-out metric and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_pose.pth")
    parser.add_argument("--start", type=Path, default=START, help="weights of the digit detector")
    args = parser.parse_args()
    repeatable()
    network = DigitPose()
    load_detector(network.detector, args.start)
    network = network.to(memory_format=torch.channels_last)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        value, at_half = evaluate(averaged, 40)
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, AP {value:.4f}, AP50 {at_half:.4f} of 40", flush=True)

    batches = with_points(training_batches(11, BATCH, FRESH, recipe=CLEARER))
    averaged = fit(network, partial(loss, network), batches, PLAN, mark)
    value, at_half = evaluate(averaged)
    print(f"{args.out}: OKS-AP {value:.6f}, AP50 {at_half:.6f} on the held-out scenes")
    return 0


if __name__ == "__main__":
    cli.run(main)
