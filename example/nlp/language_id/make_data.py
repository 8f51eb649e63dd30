"""Write data/train.tsv and data/val.tsv: short messages of two programs and which of 27 languages they are in.

Training texts are the messages of Django, held-out ones those of Django REST framework: other people's translations of
other sentences. What stands in both, in any language, is in neither's training part, and so is what is the same text
in two languages.
"""

from __future__ import annotations

import argparse
import re
import struct
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

LANGUAGES = {
    "bg": "Bulgarian",
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "fi": "Finnish",
    "fr": "French",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "nb": "Norwegian",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
}
"""Those that both programs are translated into, without those whose letters alone tell them."""

LETTERS = 12
"""A text has at least so many, in two words or more."""

_NO_WORDS = re.compile(r"%\([^)]*\)[a-z]|%[a-z]|\{[^}]*\}|<[^>]+>|&\w+;|https?://\S+")
"""Places for values, markup and addresses, which are in no language."""


class Message(NamedTuple):
    """A text, its language, and the English message that it is of."""

    text: str
    language: str
    source: str


def catalogue(file: Path) -> dict[str, str]:
    """Return the messages of a compiled catalogue (gettext's .mo) by the English ones, each plural form for itself.

    Raises:
        DataError: the file is none.
    """
    data = file.read_bytes()
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise DataError(f"{file} is no catalogue of gettext; fetch the package again")
    count, sources, texts = struct.unpack(f"{order}3I", data[8:20])
    found: dict[str, str] = {}
    for place in range(count):
        pair = []
        for table in (sources, texts):
            length, start = struct.unpack_from(f"{order}2I", data, table + 8 * place)
            pair.append(data[start : start + length].decode().rpartition("\x04")[2].split("\0"))
        for source, text in zip(*pair, strict=False):
            found.setdefault(source, text)
    return {source: text for source, text in found.items() if source}


def messages(folder: Path) -> list[Message]:
    """Return the usable messages of a program, language by language."""
    by_language: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
    for file in sorted(folder.rglob("*.mo")):
        language = file.parent.parent.name
        if language in LANGUAGES and language != "en":
            for source, text in catalogue(file).items():
                by_language[language].setdefault(source, text)
    every = sorted({source for one in by_language.values() for source in one})
    by_language["en"] = {source: source for source in every}
    found = [
        Message(cleaned(text), language, cleaned(source))
        for language, texts in by_language.items()
        for source, text in sorted(texts.items())
        if language == "en" or text != source
    ]
    return without_doubles([one for one in found if _says_something(one.text)])


def cleaned(text: str) -> str:
    """Return a message without places for values and markup, on one line, in Unicode's form NFC."""
    return unicodedata.normalize("NFC", " ".join(_NO_WORDS.sub(" ", text).split()))


def _says_something(text: str) -> bool:
    return " " in text and sum(letter.isalpha() for letter in text) >= LETTERS


def without_doubles(found: list[Message]) -> list[Message]:
    """Return each text once, and none that stands in two languages."""
    languages = defaultdict(set)
    for one in found:
        languages[one.text].add(one.language)
    once = {one.text: one for one in reversed(found) if len(languages[one.text]) == 1}
    return [one for one in found if once.get(one.text) is one]


def written(rows: list[Message], file: Path) -> str:
    """Write rows as a table and say how many there are."""
    lines = [f"{one.text}\t{LANGUAGES[one.language]}\n" for one in rows]
    file.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8", newline="\n")
    return f"{file}: {len(rows)} texts in {len({one.language for one in rows})} languages"


def main() -> int:
    """Read both programs' messages and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "data", help="folder of the tables")
    args = parser.parse_args()
    held_out = messages(fetched("django_rest_messages"))
    texts, sources = {one.text for one in held_out}, {one.source for one in held_out}
    training = [
        one for one in messages(fetched("django_messages")) if one.text not in texts and one.source not in sources
    ]
    for rows, name in ((training, "train.tsv"), (held_out, "val.tsv")):
        print(written(rows, args.out / name))
    return 0


if __name__ == "__main__":
    cli.run(main)
