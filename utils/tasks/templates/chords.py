"""Sample recordings of speech recognition: chords of two tones, each of which is a letter, separated by pauses
(blanks)."""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

RATE = 8000
TONES = {"d": (350, 1100), "o": (500, 1500), "r": (700, 2000), "e": (950, 2700)}
"""Letters and their two frequencies in Hz."""

WORDS = ("red", "ode", "door", "deer", "order", "rode", "doer", "eerdre")
"""Texts of the recordings."""

SOUND, GAP, PAUSE = 0.12, 0.06, 0.3
"""Seconds of a letter, between two letters, and between two words."""

RECORDINGS = 12


def fill(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/recordings`` and ``data/recordings.jsonl`` with their texts; return words."""
    recordings = folder / "data" / "recordings"
    recordings.mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(RECORDINGS):
        words = [WORDS[place] for place in chance.integers(len(WORDS), size=1 + index % 2)]
        samples = said(" ".join(words), chance)
        name = f"recordings/tones_{index:02}.wav"
        _write(folder / "data" / name, samples)
        row = {"audio_filepath": name, "duration": len(samples) / RATE, "text": " ".join(words)}
        rows.append(json.dumps(row) + "\n")
    (folder / "data" / "recordings.jsonl").write_text("".join(rows), encoding="utf-8", newline="\n")
    return {"rate": str(RATE), "recordings": str(RECORDINGS), "tones": json.dumps(TONES)}


def said(text: str, chance: np.random.Generator) -> Array:
    """Return a text as tones, float64 in -1..1 at :data:`RATE`, at any speed and pitch, with some noise."""
    speed, pitch = chance.uniform(0.9, 1.2), chance.uniform(0.98, 1.02)
    parts = [_pause(PAUSE, speed)]
    for character in text:
        if character == " ":
            parts.append(_pause(PAUSE, speed))
            continue
        time = np.arange(round(SOUND * speed * RATE)) / RATE
        swell = np.sin(np.pi * np.arange(len(time)) / len(time)) ** 0.5
        tones = [np.sin(2 * np.pi * pitch * frequency * time) for frequency in TONES[character]]
        parts += [0.2 * swell * np.sum(tones, axis=0), _pause(GAP, speed)]
    samples = np.concatenate([*parts, _pause(PAUSE, speed)])
    return samples + chance.normal(0, 0.001, len(samples))


def _pause(seconds: float, speed: float) -> Array:
    return np.zeros(round(seconds * speed * RATE))


def _write(file: Path, samples: Array) -> None:
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 1, RATE, 0, "NONE", ""))  # 8 bits, so that the folder stays small
        out.writeframes(np.round(np.clip(samples, -1, 1) * 127 + 128).astype(np.uint8).tobytes())


"""Filters on the tones with fixed weights, and a convolution that detects long pauses."""
