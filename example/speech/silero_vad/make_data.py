"""Mix recorded phrases at known positions into noise: data/val (for valid) and data/samples (unlabelled)."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, add_version
from utils.fetch import fetched
from utils.pipeline import cli
from utils.preprocess.audio.reading import read_sound
from utils.preprocess.audio.wav import write_mu_law

HERE = Path(__file__).resolve().parent
RATE, CHUNK = 16000, 512
SECONDS = 157 * CHUNK / RATE
"""Length of a recording: a multiple of the model's chunk, about 5 s."""

VOICES = {
    "en": ("voices_en", "en_US_f_Allison"),
    "fr": ("voices_fr", "fr_CA_f_June"),
    "it": ("voices_it", "it_IT_m_Carlo"),
    "ru": ("voices_ru", "ru_RU_f_IvrvoiceRU"),
}


class Scene(NamedTuple):
    """A recording: its samples, the speech segments in seconds, and its sources."""

    sound: Array
    segments: list[list[float]]
    sources: list[str]


def phrases(voice: str) -> list[tuple[str, Path]]:
    """Return the recordings of a voice by their names in the package, sorted."""
    package, folder = VOICES[voice]
    top = fetched(package) / "usr/share/asterisk/sounds" / folder
    return [(f"{folder}/{file.name}", file) for file in sorted(top.glob("*.wav"))]


def scene(
    files: list[tuple[str, Path]], count: int, seconds: float, noise: float, chance: np.random.Generator
) -> Scene:
    """Return phrases with pauses between them, in white noise at the given signal-to-noise ratio in dB.

    The labels are computed from the clean phrases: a chunk is speech if its RMS is above 5 % of the loudest chunk's, or
    if such a chunk is within 3 chunks (0.1 s) of it.
    """
    total = round(seconds * RATE)
    while True:
        picked = [files[place] for place in chance.integers(0, len(files), count)]
        sounds = [read_sound(file, RATE).samples for _, file in picked]
        free = total - sum(map(len, sounds))
        if min(map(len, sounds)) > RATE // 2 and free > (count + 1) * RATE // 2:
            break
    shares = chance.dirichlet(np.full(count + 1, 4.0)) * free
    clean, at = np.zeros(total, np.float32), 0.0
    for share, sound in zip(shares, sounds, strict=False):
        at += share
        clean[round(at) : round(at) + len(sound)] = sound[: total - round(at)]
        at += len(sound)
    loud = np.sqrt((clean.reshape(-1, CHUNK) ** 2).mean(axis=1))
    speech = np.convolve(loud > 0.05 * loud.max(), np.ones(7), "same") > 0
    level = float(np.sqrt((np.concatenate(sounds) ** 2).mean())) * 10 ** (-noise / 20)
    sound = clean + (chance.standard_normal(total) * level).astype(np.float32)
    return Scene(sound / max(1.0, float(np.abs(sound).max())), _spans(speech), [name for name, _ in picked])


def _spans(speech: Array) -> list[list[float]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], speech.astype(np.int8), [0]])))
    return [[begin * CHUNK / RATE, end * CHUNK / RATE] for begin, end in edges.reshape(-1, 2).tolist()]


def write(folder: Path, name: str, made: Scene, **more: object) -> dict[str, object]:
    """Write a recording, and return its row of the list."""
    write_mu_law(folder / f"{name}.wav", made.sound, RATE)
    row = {"audio_filepath": f"{folder.name}/{name}.wav", "duration": len(made.sound) / RATE}
    return {**row, "segments": made.segments, **more, "sources": made.sources}


def main() -> int:
    """Write both folders and the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--count", type=int, default=8, help="recordings of each of the four voices")
    parser.add_argument("--out", type=Path, default=HERE / "data")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "recordings of 8000 Hz")
    for name in ("val", "samples"):
        (args.out / name).mkdir(parents=True, exist_ok=True)
    rows = []
    for number, voice in enumerate(VOICES):
        chance, files = np.random.default_rng(number), phrases(voice)
        for index in range(args.count):
            noise = float(chance.uniform(5, 20))
            made = scene(files, 1 + index % 2, SECONDS, noise, chance)
            more = {"speaker": VOICES[voice][1], "noise_db": round(noise, 1)}
            rows.append(write(args.out / "val", f"{voice}_{index:02d}", made, **more))
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (args.out / "val.jsonl").write_text(text, encoding="utf-8")
    chance = np.random.default_rng(100)
    for voice in ("en", "it"):
        write(
            args.out / "samples",
            f"two_phrases_{voice}",
            scene(phrases(voice), 2, 1.4 * SECONDS // 0.032 * 0.032, 15, chance),
        )
    still = (chance.standard_normal(3 * RATE) * 0.02).astype(np.float32)
    write_mu_law(args.out / "samples" / "noise.wav", still, RATE)
    print(f"{args.out}: {len(rows)} recordings of {SECONDS:.2f} s")
    return 0


if __name__ == "__main__":
    cli.run(main)
