"""Words cut out of Asterisk's English prompts: the places where the prompts' recogniser aligns them.

The prompts are whole sentences. Their transcripts are known, so the recogniser of ``../prompts_ctc`` gives the most
likely time of every letter, and a recording is cut in the middle of the gaps between two words. Nobody checked the
cuts: a clip may begin or end a little early or late.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

RECOGNISER = Path(__file__).resolve().parent.parent / "prompts_ctc"
sys.path.append(str(RECOGNISER))  # behind this folder, which has a model.py too
from prompts import ALPHABET, FEATURES, SILENCE, Prompt, prompts

from engine import Array, ConfigError, EngineSpec, open_engine
from utils.postprocess.text.alignment import aligned
from utils.postprocess.text.ctc import probabilities
from utils.preprocess.audio.features import log_mel
from utils.preprocess.audio.reading import read_sound

KEYPAD = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "star", "pound")
COMMANDS = ("press", "please", "enter", "number", "message", "conference")
OTHER = "_unknown_"
LABELS = (*KEYPAD, *COMMANDS, OTHER)
"""Classes: the keys of a telephone, frequent words, and every other word, named as in Speech Commands."""

EVERY = 3
"""One in this many of the occurrences of each word is held out."""

MOST, OTHERS = 12, 40
"""Held-out clips of each word at most, and of all other words together."""

SHORTEST, LONGEST = 0.1, 1.0
"""Seconds of a clip; others are left out, because most of them are wrong alignments."""

MARGIN, STRIDE = 63, 3
"""Frames at each end of the recogniser's input without a step, and frames of a step."""

FAINT = 0.05
"""Amplitude relative to the clip's maximum below which its ends are silence."""

COPIED = 0.9
"""Correlation from which a held-out clip is the same recording as one of the training, and is left out."""


class Word(NamedTuple):
    """A word of a prompt.

    Attributes:
        name: of the prompt, and how many of the words before have the same label: ``vm-opts_nohash_1``.
        label: one of :data:`LABELS`. text: the word. samples: float32 [S] at 8 kHz.
    """

    name: str
    label: str
    text: str
    samples: Array


def words() -> list[Word]:
    """Fetch the prompts, align and cut them; return all words in the prompts' order."""
    found = []
    with open_engine("onnx", EngineSpec(ckpt=RECOGNISER / "prompts_ctc_dyn.onnx", batch_size=1)) as engine:
        for prompt in prompts():
            samples = read_sound(prompt.file, FEATURES.rate).samples
            counts: dict[str, int] = {}
            for text, clip in _clips(engine, prompt, samples):
                label = text if text in LABELS else OTHER
                number = counts.get(label, 0)
                counts[label] = number + 1
                if SHORTEST <= len(clip) / FEATURES.rate <= LONGEST:
                    found.append(Word(f"{prompt.name.replace('/', '-')}_nohash_{number}", label, text, clip))
    return found


def _clips(engine: object, prompt: Prompt, samples: Array) -> list[tuple[str, Array]]:
    frames = log_mel(samples, FEATURES)
    rows = np.full((1, -(-len(frames) // STRIDE) * STRIDE + 2 * MARGIN, FEATURES.bands), SILENCE, np.float32)
    rows[0, MARGIN : MARGIN + len(frames)] = frames
    steps = np.log(np.maximum(probabilities(engine(rows)[0], True), 1e-30).astype(np.float64))
    classes = [1 + ALPHABET.index(one) for one in prompt.text]
    try:
        spans = aligned(steps, classes)
    except ConfigError:  # spoken faster than the steps
        return []
    hop = FEATURES.hop * STRIDE
    gaps = [place for place, one in enumerate(prompt.text) if one == " "]
    # without a pause the letters of two words follow each other, and the blank between them has a step of its own
    cuts = [0, *(round(float(spans[place].mean()) * hop) for place in gaps), len(samples)]
    return [
        (text, _trimmed(samples[start:stop]))
        for text, start, stop in zip(prompt.text.split(), cuts[:-1], cuts[1:], strict=True)
    ]


def _trimmed(clip: Array) -> Array:
    """Return a clip without silence at its ends, except 30 ms."""
    if not len(clip):
        return clip
    loud = np.flatnonzero(np.abs(clip) > FAINT * np.abs(clip).max())
    edge = round(0.03 * FEATURES.rate)
    return clip[max(0, loud[0] - edge) : loud[-1] + edge]


def split(found: list[Word]) -> tuple[list[Word], list[Word]]:
    """Return the words to train on, and the held-out ones.

    Word by word, the rarest first, prompts are held out until they have a third of its occurrences; all words of a
    prompt go to the same part. Held-out clips that are also in the training (one recording in two prompts) are left
    out. Of each word :data:`MOST` are kept, of the other words :data:`OTHERS`.
    """
    chance = np.random.default_rng(0)
    places: dict[str, list[str]] = {label: [] for label in LABELS[:-1]}
    for word in found:
        if word.label != OTHER:
            places[word.label].append(prompt_of(word))
    tested: set[str] = set()
    for label in sorted(places, key=lambda label: len(places[label])):
        names = sorted(set(places[label]))
        chance.shuffle(names)
        for name in names:
            if EVERY * sum(one in tested for one in places[label]) < len(places[label]):
                tested.add(name)
    train = [word for word in found if prompt_of(word) not in tested]
    test = [word for word in found if prompt_of(word) in tested and not _is_copy(word, train)]
    kept = set[str]()
    for label in LABELS:
        names = [f"{word.label}/{word.name}" for word in test if word.label == label]
        kept.update(names[place] for place in chance.permutation(len(names))[: OTHERS if label == OTHER else MOST])
    return train, [word for word in test if f"{word.label}/{word.name}" in kept]


def prompt_of(word: Word) -> str:
    """Return the name of a word's prompt."""
    return word.name.partition("_nohash_")[0]


def _is_copy(word: Word, others: list[Word]) -> bool:
    return any(correlation(word.samples, one.samples) > COPIED for one in others if one.text == word.text)


def correlation(one: Array, other: Array) -> float:
    """Return the largest normalised correlation of two clips over all shifts, 0 to 1."""
    size = 1 << (len(one) + len(other)).bit_length()
    spectrum = np.fft.rfft(one.astype(np.float64), size) * np.conj(np.fft.rfft(other.astype(np.float64), size))
    found = np.abs(np.fft.irfft(spectrum, size)).max()
    return float(
        found / np.sqrt(float(np.square(one, dtype=np.float64).sum() * np.square(other, dtype=np.float64).sum()))
    )
