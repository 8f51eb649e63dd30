"""Train espcn_x2 on pieces of photographs, cut as it goes: seeded, one thread, the same weights every time.

A piece is flipped, turned, recoloured and reduced at random, and its half by Pillow's bicubic filter is the input. The
seven photographs are not those of ``data``, which are only ever used to print PSNR and SSIM (with scikit-image), never
to choose anything.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.digit_scenes import PHOTOS, photo_path
from utils.pipeline import cli
from utils.preprocess.image.images import open_image

with needed(__file__):
    import torch
    from model import SCALE, Espcn
    from skimage.color import rgb2ycbcr
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
PLAN = Plan(4000, rate=0.002, decay=0.0)
BATCH, SIDE = 8, 80
"""Pieces per batch, and height and width of their targets in pixels."""


def halved(image: Image.Image) -> Image.Image:
    """Return an image of half the size, by Pillow's bicubic filter with antialiasing."""
    return image.resize((image.width // SCALE, image.height // SCALE), Image.Resampling.BICUBIC)


def piece(photos: list[Image.Image], rng: np.random.Generator) -> Image.Image:
    """Return a random piece of a photograph, SIDE x SIDE."""
    photo = photos[int(rng.integers(len(photos)))]
    side = round(SIDE * float(rng.choice([1.0, 1.0, 1.3, 1.7, 2.2])))
    left, top = (int(rng.integers(0, edge - side + 1)) for edge in photo.size)
    found = photo.crop((left, top, left + side, top + side))
    if side != SIDE:
        found = found.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels = np.rot90(np.asarray(found), int(rng.integers(4)))
    if rng.random() < 0.5:
        pixels = pixels[:, ::-1]
    return Image.fromarray(np.ascontiguousarray(pixels[..., rng.permutation(3)]))


def as_input(images: list[Image.Image]) -> torch.Tensor:
    """Return RGB images as N x 3 x H x W in 0..1."""
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float() / 255


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield inputs and targets without end."""
    rng = np.random.default_rng(seed)
    photos = [open_image(photo_path(one)) for one in PHOTOS if one.part == "train" and "flower" not in one.file]
    while True:
        wanted = [piece(photos, rng) for _ in range(BATCH)]
        yield as_input([halved(one) for one in wanted]), as_input(wanted)


def figures(found: Array, wanted: Array) -> tuple[float, float]:
    """Return PSNR and SSIM of the Y channel without the outermost two pixels, as papers of super-resolution do."""
    one, right = (rgb2ycbcr(pixels)[SCALE:-SCALE, SCALE:-SCALE, 0] for pixels in (found, wanted))
    how = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255}
    return peak_signal_noise_ratio(right, one, data_range=255), structural_similarity(right, one, **how)


@torch.no_grad()
def evaluate(network: torch.nn.Module) -> tuple[Array, Array]:
    """Return the mean PSNR and SSIM on the held-out images: of the network, and of the bicubic filter."""
    ours, bicubic = [], []
    for path in sorted((HERE / "data" / "val" / "HR").glob("*.png")):
        image = open_image(path)
        low, wanted = halved(image), np.asarray(image)
        found = network(as_input([low]))[0].permute(1, 2, 0).mul(255).clamp(0, 255).round().byte().numpy()
        ours.append(figures(found, wanted))
        bicubic.append(figures(np.asarray(low.resize(image.size, Image.Resampling.BICUBIC)), wanted))
    return np.mean(ours, axis=0), np.mean(bicubic, axis=0)


def main() -> int:
    """Train, print the held-out PSNR and SSIM, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "espcn_x2.pth")
    args = parser.parse_args()
    repeatable()
    network = Espcn()
    print(f"{sum(one.numel() for one in network.parameters())} parameters")
    started = time.process_time()

    def loss(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return functional.l1_loss(network(pair[0]), pair[1])

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        psnr, ssim = evaluate(averaged)[0]
        print(f"step {step}: {minutes:.1f} min, loss {late:.5f}, PSNR {psnr:.3f}, SSIM {ssim:.4f}", flush=True)

    averaged = fit(network, loss, batches(5), PLAN, mark)
    save(averaged, args.out)
    (psnr, ssim), bicubic = evaluate(averaged)
    print(f"{args.out}: PSNR {psnr:.6f} dB, SSIM {ssim:.6f} on the held-out images")
    print(f"bicubic filter: PSNR {bicubic[0]:.6f} dB, SSIM {bicubic[1]:.6f}")
    return 0


if __name__ == "__main__":
    cli.run(main)
