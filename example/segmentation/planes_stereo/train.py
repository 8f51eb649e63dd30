"""Train planes_stereo on rendered scenes: seeded, one thread, the same weights every time.

The scenes show other photographs and digits than those of ``data``, on which nothing is trained; but a first network
with a correlation volume was replaced by this one because of its error on them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.stereo_scenes import StereoScene, compose, material
from utils.pipeline import cli
from utils.preprocess.image.images import open_image

with needed(__file__):
    import torch
    from model import PlanesStereo
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
PLAN = Plan(400, rate=0.006, warm=40, decay=0.0001, average=0.97, every=50)
BATCH, SCENES, SEED = 4, 120, 3
"""Scenes per batch; rendered scenes, which are used again, with the images' halves swapped upside down at random."""


def as_input(images: Sequence[Array]) -> torch.Tensor:
    """Return H x W x 3 uint8 images as N x 3 x H x W in 0..1."""
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255


def batches() -> Iterator[list[StereoScene]]:
    """Yield batches without end, of scenes upside down or not, with the channels permuted."""
    made_of, rng = material("train"), np.random.default_rng(SEED)
    scenes = [compose(made_of, SEED, number) for number in range(SCENES)]
    while True:
        batch = []
        for place in rng.choice(SCENES, BATCH, replace=False):
            down, order = int(rng.choice([-1, 1])), rng.permutation(3)
            one = scenes[place]
            images = (np.ascontiguousarray(image[::down, :, order]) for image in (one.left, one.right))
            batch.append(StereoScene(*images, np.ascontiguousarray(one.disparity[::down])))
        yield batch


def loss(network: PlanesStereo, scenes: Sequence[StereoScene]) -> torch.Tensor:
    """Return the smooth L1 error of both stages, plus the cross entropy of the confidence, over known pixels."""
    wanted = torch.from_numpy(np.stack([scene.disparity for scene in scenes]))[:, None]
    known = (wanted > 0).float()
    left, right = (as_input([getattr(scene, view) for scene in scenes]) for view in ("left", "right"))
    coarse, fine, sure = network.raw(left, right)
    errors = [functional.smooth_l1_loss(found, wanted, reduction="none") for found in (coarse, fine)]
    good = ((fine.detach() - wanted).abs() < 1).float()
    unsure = functional.binary_cross_entropy_with_logits(sure, good, reduction="none")
    return ((0.5 * errors[0] + errors[1] + 0.3 * unsure) * known).sum() / known.sum()


@torch.no_grad()
def evaluate(network: torch.nn.Module) -> tuple[float, float, float]:
    """Return on the held-out scenes the mean end-point error in pixels, the share of errors of 3 pixels and 5 % (D1),
    and the error of the most confident half of the pixels; each the mean over the scenes."""
    rows = []
    for file in sorted((HERE / "data" / "val" / "disp_occ_0").glob("*.png")):
        left, right = (np.asarray(open_image(file.parents[1] / view / file.name)) for view in ("image_2", "image_3"))
        with Image.open(file) as stored:
            wanted = np.array(stored, np.float64) / 256
        found, sure = (one[0, 0].numpy().astype(np.float64) for one in network(as_input([left]), as_input([right])))
        known = wanted > 0
        off = np.abs(found - wanted)[known]
        surest = np.argsort(-sure[known], kind="stable")[: len(off) // 2]
        rows.append((off.mean(), ((off > 3) & (off > 0.05 * wanted[known])).mean(), off[surest].mean()))
    epe, bad, half = np.mean(rows, axis=0).tolist()
    return epe, bad, half


def main() -> int:
    """Train, print the held-out errors, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "planes_stereo.pth")
    args = parser.parse_args()
    repeatable()
    network = PlanesStereo()
    print(f"{sum(one.numel() for one in network.parameters())} parameters")
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        epe, bad, half = evaluate(averaged)
        print(
            f"step {step}: {minutes:.1f} min, loss {late:.4f}, EPE {epe:.3f}, D1 {bad:.3f}, surest {half:.3f}",
            flush=True,
        )

    averaged = fit(network, lambda scenes: loss(network, scenes), batches(), PLAN, mark)
    save(averaged, args.out)
    epe, bad, half = evaluate(averaged)
    sure = f"EPE of the most confident half {half:.6f}"
    print(f"{args.out}: EPE {epe:.6f} pixels, D1 {bad:.6f}, {sure} on the held-out scenes")
    return 0


if __name__ == "__main__":
    cli.run(main)
