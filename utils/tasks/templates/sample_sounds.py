"""Sample recordings of ``teco new``, made with fixed seeds; each ``fill_*`` returns words for the templates."""

from __future__ import annotations

import json
import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array
from utils.preprocess.audio.wav import write_mu_law
from utils.tasks import Template

RATE = 8000
"""Samples per second of all recordings."""


def _texts(**words: object) -> dict[str, str]:
    return {name: str(value) for name, value in words.items()}


def _write(file: Path, samples: Array) -> None:
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 1, RATE, 0, "NONE", ""))  # 8 bits, so that the folder stays small
        out.writeframes(np.round(np.clip(samples, -1, 1) * 127 + 128).astype(np.uint8).tobytes())


# --------- speech recognition: chords of two tones, each of which is a letter, and pauses (blanks)

CHORDS = {"d": (350, 1100), "o": (500, 1500), "r": (700, 2000), "e": (950, 2700)}
"""Letters and their two frequencies in Hz."""

WORDS = ("red", "ode", "door", "deer", "order", "rode", "doer", "eerdre")

SOUND, GAP, PAUSE = 0.12, 0.06, 0.3
"""Seconds of a letter, between two letters, and between two words."""

SAYINGS = 12
"""Number of recordings."""


def fill_sayings(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/recordings`` and ``data/recordings.jsonl`` with their texts."""
    (folder / "data" / "recordings").mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = []
    for index in range(SAYINGS):
        text = " ".join(WORDS[place] for place in chance.integers(len(WORDS), size=1 + index % 2))
        samples = said(text, chance)
        name = f"recordings/tones_{index:02}.wav"
        _write(folder / "data" / name, samples)
        rows.append(json.dumps({"audio_filepath": name, "duration": len(samples) / RATE, "text": text}) + "\n")
    (folder / "data" / "recordings.jsonl").write_text("".join(rows), encoding="utf-8", newline="\n")
    return _texts(rate=RATE, recordings=SAYINGS, tones=json.dumps(CHORDS))


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
        tones = [np.sin(2 * np.pi * pitch * frequency * time) for frequency in CHORDS[character]]
        parts += [0.2 * swell * np.sum(tones, axis=0), _pause(GAP, speed)]
    samples = np.concatenate([*parts, _pause(PAUSE, speed)])
    return samples + chance.normal(0, 0.001, len(samples))


def _pause(seconds: float, speed: float) -> Array:
    return np.zeros(round(seconds * speed * RATE))


# --------- speaker verification: hums, with a pitch and bands per speaker

SECONDS = 0.7
"""Length of each hum."""

SPEAKERS = ("ada", "ben", "cleo", "dora", "emil", "finn", "gina", "hugo")

HUMS = 4
"""Recordings per speaker; they differ in initial pause and loudness."""

BANDS, FRAMES = 20, 40
"""Mel bands and frames of the tiny network's input."""


def fill_hums(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/NAME/NAME_1.wav``."""
    chance = np.random.default_rng(3)
    for name in SPEAKERS:
        (folder / "data" / name).mkdir(parents=True)
        pitch, loud = 90 + 130 * chance.random(), chance.uniform(-30, 0, 12)
        for number in range(1, HUMS + 1):
            sound = _hum(pitch * chance.uniform(0.98, 1.02), loud, chance)
            _write(folder / "data" / name / f"{name}_{number}.wav", sound)
    return _texts(rate=RATE, bands=BANDS, frames=FRAMES, speakers=len(SPEAKERS), recordings=HUMS)


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


# --------- voice activity: tones with pauses in faint noise, and times

CHUNK, CONTEXT = 256, 32
"""Of the tiny network: samples per chunk, and of context before a chunk."""

TONES = 16
"""Number of recordings."""


def fill_tones(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/sounds`` and times of tones into ``data/val.jsonl``."""
    sounds = folder / "data" / "sounds"
    sounds.mkdir(parents=True)
    chance, rows = np.random.default_rng(0), []
    for index in range(TONES):
        sound, segments = _tones(40 + 6 * (index % 3), chance)
        write_mu_law(sounds / f"tones_{index:02}.wav", sound, RATE)
        rows.append({"audio_filepath": f"sounds/tones_{index:02}.wav", "segments": segments})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "data" / "val.jsonl").write_text(text, encoding="utf-8", newline="\n")
    return _texts(rate=RATE, chunk=CHUNK, context=CONTEXT, width=CHUNK + CONTEXT, recordings=TONES)


def _tones(chunks: int, chance: np.random.Generator) -> tuple[Array, list[list[float]]]:
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


# --------- sound classification: low, middle and high tones, and noise

PITCHES = {"low": (200, 450), "middle": (950, 1250), "high": (2200, 3400)}
"""Lowest and highest frequency in Hz of each class of tones."""

TONE_BANDS, TONE_EDGES = 20, (0, 7, 14, 20)
"""Mel bands of the tiny network's input, and the first bands of the three classes, with the end of the last one."""

TONE_SECONDS = 0.5
"""Length of its window."""

TONES_OF_EACH = 5
"""Recordings per class; two are longer than a window, and one is shorter."""


def fill_classes(folder: Path) -> Mapping[str, str]:
    """Write recordings into ``data/val/CLASS/CLASS_0.wav``."""
    chance = np.random.default_rng(1)
    for name in (*PITCHES, "noise"):
        (folder / "data" / "val" / name).mkdir(parents=True)
        for number in range(TONES_OF_EACH):
            seconds = (0.5, 0.9, 0.4, 0.5, 1.1)[number]
            moments = np.arange(round(RATE * seconds)) / RATE
            if name in PITCHES:
                pitch = chance.uniform(*PITCHES[name])
                sound = chance.uniform(0.2, 0.6) * np.sin(2 * np.pi * pitch * moments) + chance.normal(
                    0, 1e-3, len(moments)
                )
            else:
                sound = chance.normal(0, chance.uniform(0.05, 0.2), len(moments))
            _write(folder / "data" / "val" / name / f"{name}_{number}.wav", sound)
    frames = round(TONE_SECONDS * 100) + 1
    known = {"edges": TONE_EDGES, "seconds": TONE_SECONDS, "recordings": TONES_OF_EACH}
    return _texts(rate=RATE, bands=TONE_BANDS, frames=frames, **known)


_HERE = Path(__file__).parent
SPEECH_RECOGNITION = Template(_HERE / "speech_recognition", fill_sayings)  # filters, and a convolution for long pauses
SPEAKER_VERIFICATION = Template(_HERE / "speaker_verification", fill_hums)  # describes a hum by how loud its bands are
SOUND_CLASSIFICATION = Template(_HERE / "sound_classification", fill_classes)  # how loud its bands are
VOICE_ACTIVITY = Template(_HERE / "voice_activity", fill_tones)  # loudness, averaged with that of the previous chunk
"""Templates by task; the tiny networks have fixed weights."""
