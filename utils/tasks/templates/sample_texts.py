"""Sample sentences of ``teco new`` for tagging and translation, of fixed seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from utils.tasks.base import Template

# --------- token classification: who travels where

NAMES = {
    "PER": ("Ada", "Boris", "Clara", "Emil", "Nina", "Tom"),
    "LOC": ("Cork", "Lima", "Lyon", "Oslo", "Riga", "Rome"),
}
"""Names by their type."""

PATTERNS = (
    "PER lives in LOC .",
    "PER and PER moved from LOC to LOC .",
    "Nobody in LOC knows PER .",
    "PER met PER in LOC , and PER was late .",
    "It rained in LOC .",
)

JOURNEYS, MISLEADING = 60, 10
"""Number of sentences; in one of ``MISLEADING``, a person has the name of a city, which a table of words gets wrong."""


def fill_journeys(folder: Path) -> Mapping[str, str]:
    """Write sentences into ``data/val.conll``, with tags, and into ``data/texts.txt``."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    rows = list[str]()
    for place in range(JOURNEYS):
        for word in PATTERNS[place % len(PATTERNS)].split():
            kinds = NAMES.get("LOC" if place % MISLEADING == 0 else word, ()) if word in NAMES else ()
            rows.append(f"{_one(kinds, chance)} B-{word}" if kinds else f"{word} O")
        rows.append("")
    (folder / "data" / "val.conll").write_text("\n".join([*rows, ""]), encoding="utf-8", newline="\n")
    plain = [pattern.replace("PER", "Ada").replace("LOC", "Lyon").replace(" .", ".") for pattern in PATTERNS]
    (folder / "data" / "texts.txt").write_text("\n".join([*plain, ""]), encoding="utf-8", newline="\n")
    words = {kind.lower(): " ".join(found).lower() for kind, found in NAMES.items()}
    return words | {"sentences": str(JOURNEYS)}


def _one(words: Sequence[str], chance: np.random.Generator) -> str:
    return words[int(chance.integers(0, len(words)))]


# --------- translation: word by word, from English to French

DICTIONARY = {
    "ada": "ada",
    "boris": "boris",
    "clara": "clara",
    "emil": "emil",
    "sees": "voit",
    "hears": "entend",
    "likes": "aime",
    "and": "et",
    "here": "ici",
    "today": "aujourd'hui",
    "paris": "paris",
    "music": "musique",
    "never": "jamais",
    "always": "toujours",
    ".": ".",
}
"""French words."""

SENTENCES = (
    "ada sees paris today .",
    "boris and clara here .",
    "emil always hears music .",
    "clara likes paris and music .",
    "ada never sees boris .",
)

PAIRS, REPEATED = 40, 8
"""Number of pairs; in one of ``REPEATED`` a word occurs twice, which the network does not say again."""


def fill_phrases(folder: Path) -> Mapping[str, str]:
    """Write ``data/val.tsv``, sources and translations, and ``data/texts.txt``, sources."""
    (folder / "data").mkdir(parents=True)
    chance = np.random.default_rng(0)
    names = list(DICTIONARY)[:4]
    rows = ["source\ttarget"]
    for place in range(PAIRS):
        words = SENTENCES[place % len(SENTENCES)].split()
        own = {name: names[number] for name, number in zip(names, chance.permutation(len(names)).tolist(), strict=True)}
        words = [own.get(word, word) for word in words]
        words = [*words[:-1], "and", words[0], "."] if place % REPEATED == 0 else words
        rows.append(f"{' '.join(words)}\t{' '.join(DICTIONARY[word] for word in words)}")
    (folder / "data" / "val.tsv").write_text("\n".join([*rows, ""]), encoding="utf-8", newline="\n")
    (folder / "data" / "texts.txt").write_text("\n".join([*SENTENCES, ""]), encoding="utf-8", newline="\n")
    lines = [f"    {json.dumps(one)}: {json.dumps(other)}," for one, other in DICTIONARY.items()]
    return {"dictionary": "\n".join(lines), "pairs": str(PAIRS)}


_HERE = Path(__file__).parent
TOKEN_CLASSIFICATION = Template(_HERE / "token_classification", fill_journeys)  # looks every word up in a table
TRANSLATION = Template(_HERE / "translation", fill_phrases)  # copies the word at the same place, from a dictionary
"""Templates by task, with their tiny networks."""
