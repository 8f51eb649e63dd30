"""Preprocessing of image files to a batch, for every ``--decode``, compared with plain Pillow and NumPy.

Tried and left out, CPU time of an image of 500 x 375, of 1.5 ms in all (Pillow 13.0, simplejpeg 1.9, EPYC):

- simplejpeg decodes in 0.49 ms, Pillow in 0.56 to 0.62. Its pixels reach a Pillow image by a copy, which takes the
difference; or, without one, as ``RGBX``, whose four channels take 0.15 ms longer to resize than three.
- Pillow opens a file in 0.02 ms: calling its JPEG plugin directly saves less than 2 %.
- Packing the crop and normalising it take 0.04 and 0.06 ms; normalising without the block in between saves 0.01.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from parts.bench import DIGITS, ROOT, arguments, finish, median, take_turns
from parts.images import make_images
from PIL import Image

from engine import Timeline, recording
from utils.preprocess.image.modes import DECODES, MEAN, STD
from utils.preprocess.pytorch.classification import preprocess

LARGE = (2048, 1536)
"""Width and height in pixels of the large images: those of a small camera, for which JPEG scaling is useful."""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Image files and the sizes of their input, in pixels."""

    name: str
    files: list[Path]
    resize: int
    crop: int
    batch: int


def cases(folder: Path, count: int) -> list[ImageSet]:
    """Return the three sets of images; missing ones are created."""
    usual = sorted(make_images(folder / "images", count).rglob("*.jpg"))
    large = [enlarged(path, folder / "large" / f"{index:03d}.jpg") for index, path in enumerate(usual[: count // 8])]
    digits = sorted((DIGITS / "data/val").rglob("*.png"))[: 4 * count]
    return [
        ImageSet("JPEG 500x375", usual, 256, 224, 32),
        ImageSet("JPEG 2048x1536", large, 256, 224, 32),
        ImageSet("PNG 8x8 (digits)", digits, 32, 32, 64),
    ]


def enlarged(path: Path, to: Path) -> Path:
    """Write an image with the large size, unless it exists."""
    if not to.is_file():
        to.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            image.resize(LARGE, Image.Resampling.BICUBIC).save(to, quality=90)
    return to


def plain(files: list[Path], resize: int, crop: int) -> np.ndarray:
    """Do the same steps as a usual script."""
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    rows = []
    for file in files:
        image = Image.open(file).convert("RGB")
        short = min(image.size)
        image = image.resize((resize * image.width // short, resize * image.height // short), Image.Resampling.BILINEAR)
        left, top = round((image.width - crop) / 2), round((image.height - crop) / 2)
        pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), np.float32) / np.float32(255)
        rows.append(((pixels - mean) / std).transpose(2, 0, 1))
    return np.ascontiguousarray(np.stack(rows))


def seconds(run: Callable[[list[Path]], object], case: ImageSet) -> float:
    """Return seconds per image of one pass over the files, recorded as the pipeline does."""
    start = time.perf_counter()
    with recording(Timeline()):
        for first in range(0, len(case.files), case.batch):
            run(case.files[first : first + case.batch])
    return (time.perf_counter() - start) / len(case.files)


def measure(case: ImageSet, decode: str, rounds: int) -> dict[str, object]:
    """Compare one decoding mode with the plain steps, and print the figures."""
    out = np.empty((case.batch, 3, case.crop, case.crop), np.float32)

    def ours(files: list[Path]) -> np.ndarray:
        return preprocess(files, "float32", case.resize, case.crop, out=out[: len(files)], decode=decode)

    peer = partial(plain, resize=case.resize, crop=case.crop)
    levels = max(float((np.abs(ours([f])[0] - peer([f])[0]).max((1, 2)) * STD).max()) * 255 for f in case.files)
    turns = take_turns(partial(seconds, ours, case), partial(seconds, peer, case), rounds)
    speed, peer_speed = 1 / median(turns.ours), 1 / median(turns.peer)
    print(f"{case.name:17} {decode:8} {speed:9.0f} {peer_speed:9.0f} {1 / turns.ratio:7.2f} {levels:7.1f}")
    found = {"case": case.name, "decode": decode, "images_per_second": speed, "plain_images_per_second": peer_speed}
    return {**found, "ratio": 1 / turns.ratio, "largest_difference_levels": levels}


def main() -> int:
    """Run the benchmark."""
    args = arguments(__doc__).parse_args()
    folder = ROOT / "benchmarks/results/preprocess"
    found = cases(folder, 32)
    print("one thread, float32; images/s (medians, in turns), ratio, largest difference in levels of 255")
    print(f"{'':17} {'decode':8} {'ours':>9} {'plain':>9} {'ratio':>7} {'levels':>7}")
    rows = [measure(case, decode, 2 if args.quick else 9) for case in found for decode in DECODES]
    finish("preprocess", {"rows": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
