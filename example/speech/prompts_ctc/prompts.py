"""The English telephone prompts of Asterisk: normalised transcripts, and the held-out split.

The original transcripts contain remarks, digits and dots; this module normalises them.
"""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path
from typing import NamedTuple

from utils.fetch import fetched_path
from utils.preprocess.audio.features import LogMel

ALPHABET = " 'abcdefghijklmnopqrstuvwxyz"
"""Characters of the model's classes, in order; class 0 is CTC's blank."""

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

SPOKEN = {
    "*": " star ",
    "#": " pound ",
    "pbx": "p b x",
    "3d": "three d",
    "xray": "x ray",
    # slips of the pen: the recordings say the word
    "fourtieth": "fortieth",
    "umute": "unmute",
    "decending": "descending",
    "indentified": "identified",
    "witheld": "withheld",
    "represenatives": "representatives",
    "exclaimation": "exclamation",
}
"""Spoken forms of signs, abbreviations and misspelt words in the transcripts."""

LEFT_OUT = {
    "demo-instruct": "73 seconds with numbers that may be read in several ways (28.8, 500, 1234)",
    "demo-moreinfo": "an internet address, which may be read in several ways",
    "tt-monkeys": "monkeys, no speech",
    "spy-dahdi": "a name whose letters are said or not",
    "spy-h323": "a name whose letters are said or not",
    "spy-iax": "a name whose letters are said or not",
    "spy-iax2": "a name whose letters are said or not",
    "spy-mgcp": "a name whose letters are said or not",
    "spy-sip": "a name whose letters are said or not",
}
"""Recordings that are skipped, and the reasons. Tones and silences are skipped as well."""

FEWEST_WORDS, MOST_WORDS = 4, 30
"""Fewest and most words of a held-out prompt; the few longer ones contain words that occur nowhere else."""

EVERY = 3
"""One in this many of the eligible prompts is held out."""

FEATURES = LogMel(
    rate=8000,
    fft=256,
    window=200,
    hop=80,
    bands=40,
    low=60.0,
    high=3800.0,
    scale="htk",
    norm=False,
    pad="constant",
    log="ln",
    floor=1e-5,
    guard="add",
)
"""Features of the model: 40 bands in the range of telephone speech, every 10 ms."""

SILENCE = math.log(FEATURES.floor)
"""Value of every band in silence."""


class Prompt(NamedTuple):
    """A recording: its name, such as ``conf-full``, its file and its normalised transcript."""

    name: str
    file: Path
    text: str


def written(transcript: str) -> str:
    """Return a normalised transcript: lower case letters, apostrophes and single spaces.

    Remarks in brackets are removed; digits, signs and abbreviations become words; all other characters separate words.
    A transcript that is only a remark becomes empty.
    """
    text = re.sub(r"\[.*?\]|\(.*?\)|<.*?>", " ", transcript.lower())
    text = re.sub(r"[*#]|\b[a-z0-9]+\b", lambda found: SPOKEN.get(found[0], found[0]), text)
    text = re.sub(r"\d", lambda found: f" {DIGITS[int(found[0])]} ", text)
    return " ".join(re.sub(r"[^a-z']", " ", text).split())


def prompts() -> list[Prompt]:
    """Fetch the recordings and their transcripts and return the usable ones, sorted by name."""
    sounds = next(fetched_path("fetch:voices_en").rglob("en_US_f_Allison"))
    table = next(fetched_path("fetch:voices_en_words").rglob("core-sounds-en.txt.gz"))
    found = []
    for row in gzip.decompress(table.read_bytes()).decode().splitlines():
        name, colon, transcript = row.partition(":")
        text, file = written(transcript), sounds / f"{name}.wav"
        if colon and text and name not in LEFT_OUT and file.is_file():
            found.append(Prompt(name, file, text))
    return sorted(found)


def held_out(found: list[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """Split prompts into training and test; no sentence, or most of one, is in both parts.

    A prompt is eligible for the test part if it has :data:`FEWEST_WORDS` to :data:`MOST_WORDS` words and shares no run
    of words longer than half of it with another prompt. Every :data:`EVERY`-th of these, by name, is held out.
    """
    words = [one.text.split() for one in found]
    may = [
        one
        for one, said in zip(found, words, strict=True)
        if FEWEST_WORDS <= len(said) <= MOST_WORDS
        and 2 * max(_run(said, other) for other in words if other is not said) <= len(said)
    ]
    test = may[::EVERY]
    names = {one.name for one in test}
    return [one for one in found if one.name not in names], test


def _run(one: list[str], other: list[str]) -> int:
    """Return the length of the longest run of words that two texts share."""
    best, before = 0, [0] * (len(other) + 1)
    for word in one:
        now = [0] * (len(other) + 1)
        for place, there in enumerate(other):
            if word == there:
                now[place + 1] = before[place] + 1
        best, before = max(best, *now), now
    return best
