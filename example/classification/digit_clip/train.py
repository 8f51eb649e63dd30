"""Train the pair of networks: seeded, one thread, the same weights every time; some minutes of one core.

A batch has images of different combinations, each with its caption; of all captions in the batch an image's own shall
score highest, and of all images a caption's own. The held-out combinations are only used to print the figures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from captions import tokenizer
from scenes import Combination, combinations, draw, held_out, material

from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.preprocess.text.tokens import Tokens

with needed(__file__):
    import torch
    from model import LENGTH, PIXELS, DigitClip
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
BATCH, PIECES = 40, 1500
"""Images of a batch, and pieces of photographs that they are drawn on."""

PLAN = Plan(1600, rate=0.003, warm=100, clip=5.0, average=0.99, stop=800, every=200)
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def to_input(images: list[Array]) -> torch.Tensor:
    """Return images as the network's input, by the settings that the export stores."""
    mean, deviation = (np.array(one, np.float32) for one in PIXELS)
    pixels = (np.stack(images).astype(np.float32) / 255 - mean) / deviation
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())


def to_tokens(texts: list[str], tokens: Tokens) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and mask of texts, N x LENGTH."""
    ids, mask = np.zeros((len(texts), LENGTH), np.int64), np.zeros((len(texts), LENGTH), np.int64)
    for row, one in enumerate(tokens.encode(texts, LENGTH)):
        ids[row, : len(one.ids)], mask[row, : len(one.ids)] = one.ids, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def batches(known: list[Combination], tokens: Tokens) -> Iterator[Batch]:
    """Yield batches of different combinations without end."""
    chance = np.random.default_rng(0)
    made_of = material("train", PIECES, chance)
    ids, mask = to_tokens([one.caption for one in known], tokens)
    while True:
        chosen = chance.permutation(len(known))[:BATCH]
        images = [draw(known[place], made_of, chance) for place in chosen.tolist()]
        yield to_input(images), ids[chosen], mask[chosen]


def loss(network: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross entropy of both directions."""
    scores = network(*batch)
    own = torch.arange(len(scores))
    return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2


def main() -> int:
    """Train, print how many held-out images and captions find each other, and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "digit_clip.pth")
    args = parser.parse_args()
    repeatable()
    tokens = Tokens(tokenizer(), "captions.py")
    known, new = combinations()
    test = (to_input(held_out()), *to_tokens([one.caption for one in new], tokens))
    print(f"{len(known)} combinations to train on, {len(new)} held out", flush=True)
    network: torch.nn.Module = DigitClip(tokens.size)
    started = time.process_time()

    @torch.no_grad()
    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        scores, own = averaged(*test), torch.arange(len(new))
        found, asked = ((scores.argmax(dim=axis) == own).float().mean().item() for axis in (1, 0))
        minutes = (time.process_time() - started) / 60
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, R@1 {found:.3f} and {asked:.3f}", flush=True)
        save(averaged, args.out)

    network = fit(network, lambda batch, one=network: loss(one, batch), batches(known, tokens), PLAN, mark)
    save(network, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
