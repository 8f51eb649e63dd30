"""Write a video of handwritten digits that move over a photograph, to try the scripts with: ``make_clip.py clip.mp4``.

``utils/datasets/synthetic/moving_digits.py`` composes it of the digits and photographs of the held-out scenes.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError, add_version
from utils.datasets.synthetic.digit_scenes import sources
from utils.datasets.synthetic.moving_digits import MovingDigits
from utils.pipeline import cli
from utils.video.writer import VideoWriter

MOST = 100_000
"""Largest number of frames, and largest side in pixels, that are certainly meant."""


def main() -> int:
    """Write the video."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("file", type=Path, help="the MP4 file to write")
    parser.add_argument("--frames", type=int, default=120, help="number of frames (default: 120)")
    parser.add_argument("--rate", type=int, default=30, help="frames per second (default: 30)")
    parser.add_argument("--side", type=int, default=320, help="width and height in pixels (default: 320)")
    parser.add_argument("--digits", type=int, default=5, help="number of digits (default: 5)")
    parser.add_argument("--seed", type=int, default=2, help="of the video (default: 2)")
    asked = parser.parse_args()
    for name, least in (("frames", 1), ("rate", 1), ("side", 80), ("digits", 1), ("seed", 0)):
        if not least <= getattr(asked, name) <= MOST:
            raise ConfigError(f"--{name} {getattr(asked, name)} must be from {least} to {MOST}")
    scene = MovingDigits.random(sources("val"), asked.seed, side=asked.side, digits=asked.digits, frames=asked.frames)
    writer = VideoWriter(asked.file, scene.size, Fraction(asked.rate), Fraction(1, asked.rate))
    for number in range(asked.frames):
        writer.add(Image.fromarray(scene.frame(number).image), number)
    writer.close()
    print(f"{asked.file}: {asked.frames} frames of {asked.side}x{asked.side} pixels with {asked.digits} digits")
    return 0


if __name__ == "__main__":
    cli.run(main)
