"""Preprocessing of image files to a float32 batch: each ``--decode``, with and without the C extension, and peers.

All contestants preprocess the same files in turn, in one process; the next round begins with the next contestant. The
times are CPU time, in which other processes on the same cores do not count. Peers are plain Pillow and NumPy, and
where they are installed torchvision's transforms and OpenCV (one thread, without antialiasing). Pin the process to one
core: ``taskset -c 0 python benchmarks/preprocess.py``.

Tried and left out (CPU time of an image of 500 x 375; Pillow 13.0, simplejpeg 1.9, EPYC):

- Decoding to four bytes per pixel (``RGBX`` as the raw mode of Pillow's tile) saves 3 % of Pillow's decoding, but needs
  a Pillow built with libjpeg-turbo, which only its private features show.
- Decoding only the rows and columns of the crop needs libjpeg's ``jpeg_skip_scanlines`` and ``jpeg_crop_scanline``, and
  so its headers; Pillow decodes every row, or reports a truncated file.
- Pillow opens a file in 0.02 ms: calling its JPEG plugin directly saves less than 3 %.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from parts.bench import DIGITS, ROOT, arguments, finish, median
from parts.images import make_images
from parts.preprocessing import opencv_into, plain
from PIL import Image

from engine import Timeline, recording
from tecoinfer_modelzoo import native
from utils.preprocess.image.modes import DECODES, MEAN, STD
from utils.preprocess.pytorch.classification import preprocess

Run = Callable[[list[Path], np.ndarray], object]
"""Preprocess files into a batch."""

LARGE = (2048, 1536)
"""Width and height in pixels of the large images: those of a small camera, for which JPEG scaling is useful."""

HAS_EXTENSION = native.kernels() is not None
STATUS = native.status()

PLAIN = "Pillow and NumPy"
"""The contestant to which the others are compared."""


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


def ours(files: list[Path], out: np.ndarray, case: ImageSet, decode: str, extension: str) -> None:
    """Preprocess with the C extension or, with ``extension`` 0, without it."""
    os.environ[native.VARIABLE] = extension
    preprocess(files, "float32", case.resize, case.crop, out=out, decode=decode)


def torchvision(resize: int, crop: int) -> Run:
    """Return torchvision's transforms on Pillow images, in one thread."""
    import torch

    from utils.export.networks.torchvision_models import import_torchvision

    transforms = import_torchvision().transforms
    torch.set_num_threads(1)
    steps = transforms.Compose(
        [
            transforms.Resize(resize),
            transforms.CenterCrop(crop),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )

    def run(files: list[Path], out: np.ndarray) -> None:
        torch.stack([steps(Image.open(file).convert("RGB")) for file in files], out=torch.from_numpy(out))

    return run


def opencv(resize: int) -> Run:
    """Return the usual steps with OpenCV, in one thread."""
    import cv2

    cv2.setNumThreads(1)

    def run(files: list[Path], out: np.ndarray) -> None:
        for file, planes in zip(files, out, strict=True):
            opencv_into(str(file), planes, resize)

    return run


def contestants(case: ImageSet) -> dict[str, Run]:
    """Return the contestants by name; without the extension, only those that do not need it."""
    found: dict[str, Run] = {}
    for decode in DECODES:
        if HAS_EXTENSION:
            found[f"{decode}, C extension"] = partial(ours, case=case, decode=decode, extension="1")
        found[decode] = partial(ours, case=case, decode=decode, extension="0")
    found[PLAIN] = lambda files, out: plain(files, case.resize, case.crop, out)
    if find_spec("torchvision"):
        found["torchvision"] = torchvision(case.resize, case.crop)
    if find_spec("cv2"):
        found["OpenCV"] = opencv(case.resize)
    return found


def seconds(run: Run, case: ImageSet, out: np.ndarray) -> float:
    """Return CPU seconds per image of one pass over the files, recorded as the pipeline does."""
    start = time.process_time()
    with recording(Timeline()):
        for first in range(0, len(case.files), case.batch):
            files = case.files[first : first + case.batch]
            run(files, out[: len(files)])
    return (time.process_time() - start) / len(case.files)


def difference(run: Run, peer: Run, case: ImageSet) -> float:
    """Return the largest difference between two contestants' samples, in levels of 255."""
    both = np.empty((2, 1, 3, case.crop, case.crop), np.float32)
    largest = 0.0
    for file in case.files:
        run([file], both[0])
        peer([file], both[1])
        largest = max(largest, float((np.abs(both[0] - both[1]).max((0, 2, 3)) * STD).max()) * 255)
    return largest


def measure(case: ImageSet, rounds: int) -> list[dict[str, object]]:
    """Compare the contestants on one set of images, and print the figures."""
    runs = contestants(case)
    out = np.empty((case.batch, 3, case.crop, case.crop), np.float32)
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for index in range(rounds + 1):  # the first round is not counted
        for name in names[index % len(names) :] + names[: index % len(names)]:
            taken = seconds(runs[name], case, out)
            if index:
                times[name].append(taken)
    rows = []
    for name, run in runs.items():
        ratio = median([a / b for a, b in zip(times[PLAIN], times[name], strict=True)])
        levels = difference(run, runs[PLAIN], case)
        taken, least = median(times[name]), min(times[name])
        print(f"{case.name:17} {name:21} {1e3 * taken:8.3f} {1e3 * least:8.3f} {ratio:7.2f} {levels:7.1f}")
        row = {"case": case.name, "contestant": name, "seconds": taken, "least_seconds": least}
        rows.append(row | {"times_faster_than_plain": ratio, "largest_difference_levels": levels})
    return rows


def main() -> int:
    """Run the benchmark."""
    args = arguments(__doc__).parse_args()
    name, count = ("preprocess_quick", 8) if args.quick else ("preprocess", 32)
    found = cases(ROOT / "benchmarks/results" / name, count)
    print(f"one thread, float32, CPU time per image; {STATUS}")
    print(f"{'':17} {'':21} {'ms':>8} {'least ms':>8} {'ratio':>7} {'levels':>7}")
    rows = [row for case in found for row in measure(case, 1 if args.quick else 15)]
    finish("preprocess", {"image_kernels": STATUS, "rows": rows}, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
