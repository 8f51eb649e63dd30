"""Train the prompts' recogniser: seeded, one thread, the same weights every time; about 7 minutes of one core.

The first stage trains on the prompts, concatenated at random. Then the network aligns the words, and random sequences
of words cut out of the prompts are added: the prompts are few, and a word must be recognised without its neighbours.
The held-out prompts are only used to print the error rates, never to choose anything.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from language import arpa
from prompts import ALPHABET, FEATURES, SILENCE, Prompt, held_out, prompts

from engine import Array, ConfigError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.metrics.text.transcripts import SpokenCharacterErrorRate, WordErrorRate
from utils.pipeline import cli
from utils.postprocess.text.alignment import aligned
from utils.postprocess.text.ctc import greedy
from utils.preprocess.audio.features import log_mel
from utils.preprocess.audio.reading import read_sound
from utils.preprocess.audio.resampling import resampled

with needed(__file__):
    import torch
    from model import MARGIN, STRIDE, PromptsCTC
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
SPEEDS = (0.85, 0.92, 1.0, 1.08, 1.15)
LONGEST = (100, 900)
"""Range of the random limit of the frames of concatenated prompts."""

BATCH = 6000
"""Frames of a batch."""

LOUD, BEFORE, BEHIND = 0.01, 0.1, 0.15
"""Trimming: threshold of the amplitude, and seconds kept before the first and after the last louder sample."""

PLANS = (
    Plan(1000, rate=0.003, warm=150, clip=5.0, average=0.995, every=500),
    Plan(2500, rate=0.003, warm=150, clip=5.0, average=0.995, every=500),
)


class Said(NamedTuple):
    """A training sample: features at each of :data:`SPEEDS`, T x 40, and the classes of the characters."""

    features: list[Array]
    classes: list[int]


Made = tuple[Array, list[int]]
"""Features, T x 40, and classes."""


class Sayings:
    """Generator of batches: concatenated prompts and, after the alignment, concatenated words."""

    def __init__(self, said: Sequence[Said]) -> None:
        self.said, self.words = said, list[list[list[Made]]]()
        self.chance = np.random.default_rng(0)

    def batches(self) -> Iterator[list[Made]]:
        """Yield batches of about :data:`BATCH` frames without end; each epoch has every prompt once."""
        while True:
            made = list(self._round())
            made += [self._spliced() for _ in made if self.words]
            made.sort(key=lambda one: len(one[0]))
            batches: list[list[Made]] = [[]]
            for one in made:
                if (len(batches[-1]) + 1) * len(one[0]) > BATCH and batches[-1]:
                    batches.append([])
                batches[-1].append(one)
            yield from (batches[place] for place in self.chance.permutation(len(batches)))

    def _round(self) -> Iterator[Made]:
        """Yield all prompts in random order, some of them concatenated."""
        parts: list[Said] = []
        room = self._room()
        for place in self.chance.permutation(len(self.said)):
            one = self.said[place]
            room -= len(one.features[0])
            if parts and room < 0:
                yield self._together(parts)
                parts, room = [], self._room()
            parts.append(one)
        yield self._together(parts)

    def _room(self) -> int:
        return int(self.chance.integers(*LONGEST))

    def _together(self, parts: Sequence[Said]) -> Made:
        speed = int(self.chance.integers(len(SPEEDS)))
        sound, classes = [parts[0].features[speed]], list(parts[0].classes)
        for one in parts[1:]:
            pause = np.full((self.chance.integers(20), FEATURES.bands), SILENCE, np.float32)
            sound += [pause, one.features[speed]]
            classes += [1, *one.classes]
        return np.concatenate(sound), classes

    def _spliced(self) -> Made:
        """Return random words of random prompts at one speed."""
        words = self.words[self.chance.integers(len(SPEEDS))]
        sound, classes = list[Array](), list[int]()
        for _ in range(self.chance.integers(2, 14)):
            ways = words[self.chance.integers(len(words))]
            features, own = ways[self.chance.integers(len(ways))]
            sound.append(features)
            classes += [1, *own] if classes else own
        return np.concatenate(sound), classes

    def cut(self, network: torch.nn.Module) -> None:
        """Cut all words out of the prompts at the positions that the network aligns."""
        for speed in range(len(SPEEDS)):
            found: dict[tuple[int, ...], list[Made]] = {}
            for one in self.said:
                for word in _words(network, one.features[speed], one.classes):
                    found.setdefault(tuple(word[1]), []).append(word)
            self.words.append(list(found.values()))


@torch.no_grad()
def _words(network: torch.nn.Module, features: Array, classes: list[int]) -> Iterator[Made]:
    """Yield the words of a prompt, cut in the middle of the gaps between them."""
    steps = torch.log_softmax(network(to_input([features])), dim=-1)[0].numpy()
    try:
        spans = aligned(steps, classes)
    except ConfigError:  # said faster than the steps go
        return
    gaps = [place for place, one in enumerate(classes) if one == 1]
    cuts = [0, *(int(spans[place].mean() * STRIDE) for place in gaps), len(features)]
    edges = [-1, *gaps, len(classes)]
    for place in range(len(cuts) - 1):
        if cuts[place + 1] - cuts[place] > 2 * STRIDE:
            yield features[cuts[place] : cuts[place + 1]], classes[edges[place] + 1 : edges[place + 1]]


def to_input(sounds: Sequence[Array]) -> torch.Tensor:
    """Return samples as the network's input, N x T x 40, padded with silence; each has a step per three frames."""
    longest = -(-max(map(len, sounds)) // STRIDE) * STRIDE
    found = np.full((len(sounds), longest + 2 * MARGIN, FEATURES.bands), SILENCE, np.float32)
    for row, one in zip(found, sounds, strict=True):
        row[MARGIN : MARGIN + len(one)] = one
    return torch.from_numpy(found)


def masked(features: Array, chance: np.random.Generator) -> Array:
    """Return augmented features: random gain, and masked bands and frames (SpecAugment, Park et al., 2019)."""
    found, mean = features.copy(), features.mean()
    for _ in range(2):
        width = chance.integers(8)
        first = chance.integers(FEATURES.bands - width)
        found[:, first : first + width] = mean
    for _ in range(1 + len(found) // 200):
        width = chance.integers(min(16, len(found) // 4 + 1))
        first = chance.integers(len(found) - width)
        found[first : first + width] = mean
    return np.maximum(found + chance.uniform(-1.5, 1.5), SILENCE).astype(np.float32)


def loss(network: torch.nn.Module, batch: Sequence[Made], chance: np.random.Generator) -> torch.Tensor:
    """Return the CTC loss of the texts, per character."""
    logits = network(to_input([masked(features, chance) for features, _ in batch]))
    steps = functional.log_softmax(logits, dim=-1).transpose(0, 1)
    wanted = torch.tensor([one for _, classes in batch for one in classes])
    lengths = torch.tensor([-(-len(features) // STRIDE) for features, _ in batch])
    sizes = torch.tensor([len(classes) for _, classes in batch])
    return functional.ctc_loss(steps, wanted, lengths, sizes, zero_infinity=True)


def said_in(prompt: Prompt) -> Said:
    """Return a prompt as a training sample: trimmed, at all speeds."""
    samples = read_sound(prompt.file, FEATURES.rate).samples
    loud = np.flatnonzero(np.abs(samples) > LOUD)
    first, last = (round(seconds * FEATURES.rate) for seconds in (BEFORE, BEHIND))
    samples = samples[max(0, loud[0] - first) : loud[-1] + last]
    sounds = [resampled(samples, round(FEATURES.rate * speed), FEATURES.rate) for speed in SPEEDS]
    return Said([log_mel(one, FEATURES) for one in sounds], [1 + ALPHABET.index(one) for one in prompt.text])


@torch.no_grad()
def evaluate(network: torch.nn.Module, test: Sequence[Prompt]) -> tuple[float, float]:
    """Return the character and the word error rate on prompts."""
    read = []
    for prompt in test:
        features = log_mel(read_sound(prompt.file, FEATURES.rate).samples, FEATURES)
        (found,) = greedy(network(to_input([features])).numpy(), ALPHABET)
        read.append(found.text)
    rates = SpokenCharacterErrorRate(), WordErrorRate()
    for rate in rates:
        rate.update(read, [prompt.text for prompt in test])
    return rates[0].compute(), rates[1].compute()


def main() -> int:
    """Train, print the held-out error rates and write the weights and the language model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "prompts_ctc.pth")
    parser.add_argument("--language", type=Path, default=HERE / "prompts.arpa", help="where the n-gram model goes")
    parser.add_argument(
        "--validate", action="store_true", help="take other prompts out of the training, and test with them"
    )
    args = parser.parse_args()
    repeatable()
    train, test = held_out(prompts())
    if args.validate:
        train, test = held_out(train)
    args.language.write_text(arpa(prompt.text for prompt in train), encoding="utf-8", newline="\n")
    print(f"{len(train)} prompts to train on, {len(test)} held out", flush=True)
    sayings = Sayings([said_in(prompt) for prompt in train])
    network: torch.nn.Module = PromptsCTC(len(ALPHABET) + 1)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out)
        characters, words = evaluate(averaged, test)
        minutes = (time.process_time() - started) / 60
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, CER {characters:.3f}, WER {words:.3f}", flush=True)

    for plan in PLANS:
        chance = np.random.default_rng(1)
        network = fit(
            network, lambda batch, one=network, by=chance: loss(one, batch, by), sayings.batches(), plan, mark
        )
        if not sayings.words:
            sayings.cut(network)
    save(network, args.out)
    return 0


if __name__ == "__main__":
    cli.run(main)
