"""Write data/train.tsv and data/val.tsv: prompts of a telephone exchange in English and French.

Both languages have the same names of prompts. One prompt in five is held out, by a hash of its name; a held-out source
or translation does not occur in training, also if only case, punctuation or accents differ.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import sys
import unicodedata
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import DataError, add_version
from utils.fetch import fetched
from utils.pipeline import cli

HERE = Path(__file__).resolve().parent

LEFT_OUT = ("phonetic/", "silence/", "spy-", "letters/")
"""Prefixes of the names of prompts that are spelled letters, silence or names of protocols."""

LONGEST = 120
"""Most characters of a text."""

_REMARK = re.compile(r"\([^)]*\)|\[[^\]]*\]|<[^>]*>")
"""Text in brackets, which describes the recording or is not spoken."""

_ALIKE = re.compile(r"[\W_]+")


class Pair(NamedTuple):
    """A prompt: its name, and its text in both languages."""

    name: str
    source: str
    target: str


def prompts(language: str) -> dict[str, str]:
    """Return the usable prompts of a language by name. Raises DataError if the list cannot be read."""
    package = f"voices_{language}_words"
    file = Path(fetched(package)) / f"usr/share/doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz"
    try:
        lines = gzip.decompress(file.read_bytes()).decode("utf-8-sig").splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read ({error}); fetch {package} again") from error
    parts = [line.partition(":") for line in lines if line and not line.startswith(";")]
    found = {name.strip().lower(): cleaned(text) for name, _, text in parts}
    return {
        name: text
        for name, text in found.items()
        if not name.startswith(LEFT_OUT) and len(text) <= LONGEST and sum(map(str.isalpha, text)) > 2
    }


def cleaned(text: str) -> str:
    """Return a text in Unicode form NFC, without text in brackets, quotes, and dots at its ends."""
    plain = _REMARK.sub(" ", text).replace("’", "'").strip(' "“”')
    return unicodedata.normalize("NFC", " ".join(plain.split()).strip('. "“”'))


def alike(text: str) -> str:
    """Return a key that is equal for texts that differ only in case, punctuation or accents."""
    plain = unicodedata.normalize("NFD", text.lower())
    return _ALIKE.sub(" ", "".join(one for one in plain if not unicodedata.combining(one))).strip()


def is_held_out(name: str) -> bool:
    """Return whether a prompt is held out: one in five, by a hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 5 == 0


def split() -> tuple[list[Pair], list[Pair]]:
    """Return the pairs for training and the held-out ones, without repeated sources."""
    english, french = prompts("en"), prompts("fr")
    pairs = [Pair(name, english[name], french[name]) for name in english if name in french]
    first = {alike(pair.source): pair for pair in reversed(pairs)}
    pairs = [pair for pair in pairs if first[alike(pair.source)] is pair and alike(pair.source) != alike(pair.target)]
    held_out = [pair for pair in pairs if is_held_out(pair.name)]
    known = {alike(text) for pair in held_out for text in (pair.source, pair.target)}
    training = [pair for pair in pairs if not is_held_out(pair.name)]
    return [pair for pair in training if not {alike(pair.source), alike(pair.target)} & known], held_out


def main() -> int:
    """Read both lists and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of the tables")
    out = parser.parse_args().out
    for rows, name in zip(split(), ("train.tsv", "val.tsv"), strict=True):
        text = "source\ttarget\n" + "".join(f"{pair.source}\t{pair.target}\n" for pair in rows)
        (out / name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{out / name}: {len(rows)} pairs")
    return 0


if __name__ == "__main__":
    cli.run(main)
