"""Sample recordings of voice activity: tones with pauses in faint noise, and their times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array
from utils.preprocess.audio.wav import write_mu_law

RATE, CHUNK, CONTEXT = 8000, 256, 32
"""Of the tiny network: samples per second, per chunk, and of context before a chunk."""

RECORDINGS = 16


def fill(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/sounds`` and times of tones into ``data/val.jsonl``; return further words."""
    sounds = folder / "data" / "sounds"
    sounds.mkdir(parents=True)
    chance, rows = np.random.default_rng(0), []
    for index in range(RECORDINGS):
        sound, segments = _recording(40 + 6 * (index % 3), chance)
        write_mu_law(sounds / f"tones_{index:02}.wav", sound, RATE)
        rows.append({"audio_filepath": f"sounds/tones_{index:02}.wav", "segments": segments})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data" / "val.jsonl").write_text(text, encoding="utf-8", newline="\n")
    words = {"rate": RATE, "chunk": CHUNK, "context": CONTEXT, "width": CHUNK + CONTEXT, "recordings": RECORDINGS}
    return {name: str(value) for name, value in words.items()}


def _recording(chunks: int, chance: np.random.Generator) -> tuple[Array, list[list[float]]]:
    """Return a recording of a number of chunks, and the times of its tones in seconds."""
    there, at = np.zeros(chunks, bool), int(chance.integers(4, 10))
    while at < chunks - 12:
        long = int(chance.integers(12, 20))
        there[at : at + long] = True
        at += long + int(chance.integers(10, 16))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(np.int8), [0]])))
    times = np.arange(chunks * CHUNK) / RATE
    tone = 0.35 * np.sin(2 * np.pi * (300 * times + 80 * np.sin(2 * np.pi * times)))
    noise = chance.normal(0, 0.01, len(times))
    return tone * there.repeat(CHUNK) + noise, (edges.reshape(-1, 2) * CHUNK / RATE).tolist()


"""A network with fixed weights that detects loudness, averaged with that of the previous chunk."""
