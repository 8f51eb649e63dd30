"""Entities of tagged sentences: for people, for files, and in comparison with the data's types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.formatting import clean_line
from tecoinfer_modelzoo.text import shortened
from utils.datasets.base import Batch
from utils.datasets.text.tagged import Sentence
from utils.metrics.text.entities import Chunk, chunks, parts, plain_tags, types_of
from utils.tasks import Rendering
from utils.tasks.common.prediction_files import LineFile
from utils.tasks.token_classification.scores import Tagged

LONGEST = 400
"""Maximum characters of a sentence on the screen."""


class Entity(NamedTuple):
    """An entity: its type, text, first character and end in the text, and the mean probability of its words."""

    type: str
    text: str
    begin: int
    end: int
    score: float


def entities_of(sentence: Sentence, tagged: Tagged, mode: str, scheme: str) -> list[Entity]:
    """Return the entities of a sentence; without prefixes, as of parts of speech, each word is one of its own."""
    found = []
    if all(parts(tag) is not None for tag in plain_tags(tagged.tags)):
        spans = chunks(tagged.tags, mode, scheme)
    else:
        spans = [Chunk(tag, place, place + 1) for place, tag in enumerate(tagged.tags)]
    for kind, first, last in spans:
        begin, end = sentence.starts[first], sentence.starts[last - 1] + len(sentence.words[last - 1])
        score = sum(tagged.scores[first:last]) / (last - first)
        found.append(Entity(kind, sentence.text[begin:end], begin, end, round(score, 4)))
    return found


def marked(text: str, entities: Sequence[Entity]) -> str:
    """Return the text with each entity as ``[TYPE words]``."""
    found, place = "", 0
    for one in entities:
        found += f"{text[place : one.begin]}[{one.type} {one.text}]"
        place = one.end
    return found + text[place:]


def rendered(sentence: Sentence, entities: Sequence[Entity], tagged: Tagged) -> Rendering:
    """Return the sentence with its entities in brackets; saving writes it and a line per entity."""
    line = marked(sentence.text, entities)
    shown = shortened(clean_line(line), LONGEST)
    answer = {"text": sentence.text, "entities": [one._asdict() for one in entities], "tags": list(tagged.tags)}
    return Rendering(f"{shown}  {tagged.score:.2f}", answer, partial(_save, sentence, line, tuple(entities)))


def _save(sentence: Sentence, line: str, entities: Sequence[Entity], folder: Path) -> Path:
    name = "_".join("".join(c if c.isalnum() else " " for c in sentence.text).split()[:5])[:40] or "sentence"
    file = folder / f"{name}_{sha256(sentence.text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}.txt"
    rows = [f"{one.type}\t{one.score:.4f}\t{one.begin}\t{one.end}\t{one.text}" for one in entities]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(file, "\n".join([line, "", *rows, ""]).encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror or error})") from error
    return file


class EntityFile(LineFile):
    """Writer of CoNLL's columns: word, its tag in the data (if there are any), predicted tag."""

    def see(self, batch: Batch, predictions: Sequence[Tagged]) -> None:
        """Add a batch."""
        targets = batch.targets if batch.targets is not None else [None] * len(predictions)
        for sentence, target, one in zip(batch.samples, targets, predictions, strict=True):
            for place, (word, tag) in enumerate(zip(sentence.words, one.tags, strict=True)):
                real = [] if target is None else [str(target[place])]
                self.rows.append(" ".join([word, *real, tag]) + "\n")
            self.rows.append("\n")


class UnknownTypes:
    """Diagnostics: entities of types that the model does not have, which it cannot find."""

    def __init__(self, known: set[str]) -> None:
        self._known, self._missing = known, Counter[str]()

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in the targets of a batch."""
        for target in targets:
            names = [tag for tag in target if isinstance(tag, str)]
            self._missing.update(types_of(names) - self._known if self._known else ())

    def hints(self) -> Sequence[str]:
        """Return a line with these types and the numbers of their sentences."""
        if not self._missing:
            return []
        listed = ", ".join(f"{kind} ({count} sentences)" for kind, count in self._missing.most_common(5))
        return [
            f"the data has entities of types that the model does not have: {listed}; the model's are "
            f"{', '.join(sorted(self._known))}; rename those that mean the same, in the data or in class_labels"
        ]
