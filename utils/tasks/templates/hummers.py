"""Sample recordings of speaker verification: hums, with a pitch and bands per speaker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

RATE, SECONDS = 8000, 0.7
"""Samples per second, 8 bits each, and the length of each hum."""

SPEAKERS = ("ada", "ben", "cleo", "dora", "emil", "finn", "gina", "hugo")

RECORDINGS = 4
"""Recordings per speaker; they differ in initial pause and loudness."""

BANDS, FRAMES = 20, 40
"""Mel bands and frames of the tiny network's input."""


def fill(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/NAME/NAME_1.wav``; return words for the templates."""
    import wave

    chance = np.random.default_rng(3)
    for name in SPEAKERS:
        (folder / "data" / name).mkdir(parents=True)
        pitch, loud = 90 + 130 * chance.random(), chance.uniform(-30, 0, 12)
        for number in range(1, RECORDINGS + 1):
            sound = _hum(pitch * chance.uniform(0.98, 1.02), loud, chance)
            with wave.open(str(folder / "data" / name / f"{name}_{number}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(1)
                file.setframerate(RATE)
                file.writeframes(np.round(128 + 127 * sound).astype(np.uint8).tobytes())
    words = {"rate": RATE, "bands": BANDS, "frames": FRAMES, "speakers": len(SPEAKERS), "recordings": RECORDINGS}
    return {name: str(value) for name, value in words.items()}


def _hum(pitch: float, loud: Array, chance: np.random.Generator) -> Array:
    """Return a hum, float64 [S] within -1..1: harmonics, louder in some of 12 bands of 300 Hz (dB) than in others."""
    moments = np.arange(round(RATE * SECONDS)) / RATE
    numbers = np.arange(1, int(3500 / pitch))
    gains = 10 ** (loud[np.minimum(numbers * pitch // 300, 11).astype(int)] / 20)
    phases = chance.uniform(0, 2 * np.pi, len(numbers))
    sound = np.einsum("h,hs->s", gains, np.sin(2 * np.pi * numbers[:, None] * pitch * moments + phases[:, None]))
    sound *= 1 + 0.3 * np.sin(2 * np.pi * 4 * moments + chance.uniform(0, 6))
    sound[: int(RATE * chance.uniform(0.02, 0.1))] = 0.0
    sound += 1e-3 * chance.standard_normal(len(sound)) * np.abs(sound).max()
    found: Array = chance.uniform(0.2, 0.8) * sound / np.abs(sound).max()
    return found


"""A network of a convolution and a mean with fixed weights that describes a hum by how loud its bands are."""
