"""Train the digit reader on lines composed as it goes: seeded, one thread, the same weights every time.

Every line is new: 1437 handwritten digits on eight photographs. The held-out lines in ``data`` hold other ones and are
only used to print the accuracy, never to choose anything. Each mark saves the weights of its step over the previous.
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
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.digit_lines import Line, training_batches
from utils.pipeline import cli
from utils.postprocess.text.ctc import greedy

with needed(__file__):
    import torch
    from model import DIGITS, DigitCRNN
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
HEIGHT = 32
WIDTHS = (96, 128, 160, 192, 224, 256)
"""Width in pixels to which lines are padded."""

PLAN = Plan(3600, rate=0.003, warm=200, clip=5.0)
BATCH = 32


def to_input(images: Sequence[Image.Image]) -> torch.Tensor:
    """Return lines as the network's input, N x 1 x 32 x W: grey, 32 pixels high, in -1..1, padded with 0 (mid grey)."""
    grey = [image.convert("L") for image in images]
    sized = [one.resize((-(-one.width * HEIGHT // one.height), HEIGHT), Image.Resampling.BILINEAR) for one in grey]
    longest = max(one.width for one in sized)
    width = next((width for width in WIDTHS if width >= longest), -(-longest // 4) * 4)
    lines = np.zeros((len(sized), 1, HEIGHT, width), np.float32)
    for line, one in zip(lines, sized, strict=True):
        line[0, :, : one.width] = np.asarray(one, np.float32) / 127.5 - 1
    return torch.from_numpy(lines)


def loss(network: DigitCRNN, lines: Sequence[Line]) -> torch.Tensor:
    """Return the CTC loss of the texts, per character."""
    logits = network.logits(to_input([Image.fromarray(line.image) for line in lines]))
    steps = functional.log_softmax(logits, dim=-1).transpose(0, 1)
    wanted = torch.tensor([1 + int(digit) for line in lines for digit in line.text])
    lengths = torch.tensor([len(line.text) for line in lines])
    return functional.ctc_loss(steps, wanted, torch.full((len(lines),), len(steps)), lengths, zero_infinity=True)


@torch.no_grad()
def evaluate(network: torch.nn.Module, limit: int | None = None) -> float:
    """Return the share of the held-out lines, or of the first ``limit``, that are read correctly."""
    folder = HERE / "data" / "val"
    rows = [row.split("\t") for row in (folder / "rec_gt.txt").read_text(encoding="utf-8").splitlines()][:limit]
    right = 0
    for start in range(0, len(rows), 20):
        batch = rows[start : start + 20]
        outputs = network(to_input([_opened(folder / name) for name, _ in batch])).numpy()
        read = greedy(outputs, [str(digit) for digit in range(DIGITS)])
        right += sum(one.text == text for one, (_, text) in zip(read, batch, strict=True))
    return right / len(rows)


def _opened(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


def main() -> int:
    """Train, print the held-out accuracy and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_crnn.pth")
    args = parser.parse_args()
    repeatable()
    network = DigitCRNN()
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        minutes = (time.process_time() - started) / 60
        print(
            f"step {step}: {minutes:.1f} min, loss {late:.4f}, {evaluate(averaged, 100):.2f} of 100 lines", flush=True
        )

    averaged = fit(network, lambda lines: loss(network, lines), training_batches(3, BATCH), PLAN, mark)
    save(averaged, args.out)
    print(f"{args.out}: sequence accuracy {evaluate(averaged):.6f} on the held-out lines")
    return 0


if __name__ == "__main__":
    cli.run(main)
