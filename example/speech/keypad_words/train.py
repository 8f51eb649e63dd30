"""Train the network of the keypad words: seeded, one thread, the same weights every time; about a minute of one core.

Every batch has as many clips of each class. A clip is played faster or slower; its features are made louder or softer,
moved within the second, and mixed with noise, and bands and frames are masked. The held-out clips are only used to
print the accuracy, never to choose anything.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from words import FEATURES, LABELS, SILENCE, Word, split, words

from engine import Array, add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.preprocess.audio.features import log_mel
from utils.preprocess.audio.resampling import resampled
from utils.preprocess.audio.windows import fitted

with needed(__file__):
    import torch
    from model import KeypadWords
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
SAMPLES = FEATURES.rate
"""Samples of the input: a second."""
SPEEDS = (0.85, 0.93, 1.0, 1.08, 1.17)
OF_EACH = 2
"""Clips of each class in a batch."""

PLAN = Plan(600, rate=0.006, warm=60, clip=5.0, average=0.98, stop=500, every=100)
Batch = tuple[torch.Tensor, torch.Tensor]


class Clips:
    """Generator of batches."""

    def __init__(self, train: Sequence[Word]) -> None:
        self.chance = np.random.default_rng(0)
        self.of_class = [[word for word in train if word.label == one] for one in LABELS]
        self._known: dict[tuple[str, str, float], Array] = {}

    def batches(self) -> Iterator[Batch]:
        """Yield batches of :data:`OF_EACH` clips per class without end."""
        labels = torch.arange(len(LABELS)).repeat_interleave(OF_EACH)
        while True:
            words = [clips[self.chance.integers(len(clips))] for clips in self.of_class for _ in range(OF_EACH)]
            speeds = [SPEEDS[place] for place in self.chance.integers(len(SPEEDS), size=len(words))]
            found = np.stack([self._at(word, speed) for word, speed in zip(words, speeds, strict=True)])
            yield torch.from_numpy(self._changed(found)), labels

    def _at(self, word: Word, speed: float) -> Array:
        """Return a word's features at a speed, computed once."""
        key = (word.name, word.text, speed)
        if key not in self._known:
            rate = FEATURES.rate
            self._known[key] = of_clip(resampled(word.samples, round(rate * speed), rate))
        return self._known[key]

    def _changed(self, found: Array) -> Array:
        """Return features, N x 101 x 40, changed at random: place, level, noise, and masked bands and frames."""
        chance, count, (frames, bands) = self.chance, len(found), found.shape[1:]
        shifts = np.clip(np.rint(chance.normal(0, 6, count)), -20, 20).astype(np.int64)
        padded = np.pad(found, ((0, 0), (20, 20), (0, 0)), constant_values=SILENCE)
        places = 20 - shifts[:, None] + np.arange(frames)
        found = padded[np.arange(count)[:, None], places] + chance.uniform(-3, 1.5, (count, 1, 1)).astype(np.float32)
        level = np.where(chance.random(count) < 0.7, found.max(axis=(1, 2)) - chance.uniform(2, 9, count), 2 * SILENCE)
        noise = level[:, None, None] + chance.normal(0, 0.7, found.shape) + chance.normal(0, 1.0, (count, 1, bands))
        found = np.logaddexp(found, noise.astype(np.float32))
        for axis, (size, most) in enumerate(((frames, 12), (bands, 6)), 1):
            first = chance.integers(size - most, size=count)
            last = first + chance.integers(most, size=count)
            inside = (np.arange(size) >= first[:, None]) & (np.arange(size) < last[:, None])
            found = np.where(np.expand_dims(inside, 3 - axis), found.mean(axis=(1, 2), keepdims=True), found)
        return np.maximum(found, SILENCE).astype(np.float32)


def of_clip(samples: Array) -> Array:
    """Return the model's input for a clip, 101 x 40, by the settings that the export stores."""
    return log_mel(fitted(samples, SAMPLES), FEATURES)


def loss(network: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return the cross entropy."""
    return functional.cross_entropy(network(batch[0]), batch[1], label_smoothing=0.1)


@torch.no_grad()
def accuracy(network: torch.nn.Module, test: Sequence[Word]) -> float:
    """Return the share of right answers."""
    scores = network(torch.from_numpy(np.stack([of_clip(word.samples) for word in test])))
    wanted = torch.tensor([LABELS.index(word.label) for word in test])
    return float((scores.argmax(dim=1) == wanted).float().mean())


def main() -> int:
    """Train, print the held-out accuracy and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "keypad_words.pth")
    args = parser.parse_args()
    repeatable()
    train, test = split(words())
    print(f"{len(train)} clips to train on, {len(test)} held out", flush=True)
    network: torch.nn.Module = KeypadWords(len(LABELS))
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        minutes = (time.process_time() - started) / 60
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, accuracy {accuracy(averaged, test):.4f}", flush=True)
        save(averaged, args.out)

    network = fit(network, lambda batch, one=network: loss(one, batch), Clips(train).batches(), PLAN, mark)
    save(network, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
