"""Write data/train.tsv and data/val.tsv: prompts of a telephone exchange and their languages, one of five.

A prompt is held out in all five languages or in none, by a hash of its name. A held-out
text is not among the training texts, and a text that is the same in two languages is in neither table.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import DataError, add_version
from utils.fetch import fetched
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent

LANGUAGES = {"en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "ru": "Russian"}

LEFT_OUT = ("phonetic/", "silence/", "spy-")
"""Prefixes of the names of prompts that are spelled letters, silence or names of protocols."""

LETTERS, LONGEST = 3, 240
"""Fewest letters and most characters of a text."""

_REMARK = re.compile(r"\([^)]*\)|\[[^\]]*\]|<[^>]*>")
"""Text in brackets, which describes the recording or is not spoken."""

_LOST = re.compile(r"\w\?\w|\w\? [a-z]| \? [a-z]")
"""A question mark inside a sentence, which replaces a lost accented letter in the list."""

_NEXT = re.compile(r"\.[a-z]+-[a-z-]+:")
"""The name of another prompt inside a text, due to a lost line break."""

_ALIKE = re.compile(r"[\W_]+")


class Prompt(NamedTuple):
    """A text, its language, and its name, which is the same in all languages."""

    text: str
    language: str
    name: str


def prompts(language: str) -> list[Prompt]:
    """Return the usable prompts of a language in the order of their list.

    Raises:
        DataError: the list cannot be read.
    """
    package = f"voices_{language}_words"
    file = Path(fetched(package)) / f"usr/share/doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz"
    try:
        lines = gzip.decompress(file.read_bytes()).decode("utf-8-sig").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read ({error}); fetch {package} again") from error
    parts = [line.partition(":") for line in lines if line and not line.startswith(";")]
    found = [Prompt(cleaned(text), language, name.strip().lower()) for name, _, text in parts]
    return [one for one in found if not one.name.startswith(LEFT_OUT) and _is_usable(one)]


def cleaned(text: str) -> str:
    """Return a text in Unicode form NFC, without text in brackets and without leading or trailing dots."""
    return unicodedata.normalize("NFC", " ".join(_REMARK.sub(" ", text).split()).strip(". "))


def _is_usable(one: Prompt) -> bool:
    if sum(letter.isalpha() for letter in one.text) < LETTERS or len(one.text) > LONGEST:
        return False
    if _LOST.search(one.text) or _NEXT.search(one.text):
        return False
    # a few lines of the Russian list are still the English ones
    return one.language != "ru" or bool(re.search(r"[а-яё]", one.text.lower()))


def alike(text: str) -> str:
    """Return a key that is equal for texts that differ only in case, punctuation or accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    return _ALIKE.sub(" ", "".join(one for one in plain if not unicodedata.combining(one))).strip()


def without_doubles(found: list[Prompt]) -> list[Prompt]:
    """Return the distinct texts of each language, without those that occur in two languages."""
    languages = defaultdict(set)
    for one in found:
        languages[alike(one.text)].add(one.language)
    once = {alike(one.text): one for one in reversed(found) if len(languages[alike(one.text)]) == 1}
    return [one for one in found if once.get(alike(one.text)) is one]


def is_held_out(name: str) -> bool:
    """Return whether a prompt is held out, in every language: one in four, by a hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 4 == 0


def written(rows: list[Prompt], file: Path) -> str:
    """Write rows as a table and print their number."""
    lines = [f"{one.text}\t{LANGUAGES[one.language]}\n" for one in rows]
    file.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8", newline="\n")
    counts = [f"{name} {sum(one.language == code for one in rows)}" for code, name in LANGUAGES.items()]
    return f"{file}: {len(rows)} texts ({', '.join(counts)})"


def main() -> int:
    """Read the five lists and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of the tables")
    args = parser.parse_args()
    every = [one for language in LANGUAGES for one in prompts(language)]
    held_out = [one for one in every if is_held_out(one.name)]
    known = {(one.language, alike(one.text)) for one in held_out}
    training = [one for one in every if (one.language, alike(one.text)) not in known]
    # of both together, as a text may be held out in one language and for training in another
    once = set(without_doubles(held_out + training))
    for rows, name in ((training, "train.tsv"), (held_out, "val.tsv")):
        print(written([one for one in rows if one in once], args.out / name))
    return 0


if __name__ == "__main__":
    cli.run(main)
