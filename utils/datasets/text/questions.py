"""Questions on texts, with answers if known: SQuAD 1.1 and 2.0, CMRC 2018, flat JSON lines.

- SQuAD (Rajpurkar et al., 2016 and 2018): ``data``, a list of articles with ``paragraphs``: a ``context`` and ``qas``.
- CMRC 2018 (Cui et al., 2019): the same, or a list of entries with ``context_text`` and ``qas`` with ``query_text``.
- flat: objects with ``question``, ``context`` and ``answers``, one per line or in one list. ``answers`` is a text, a
  list of texts, or in the format of SQuAD or of the hub: ``{"text": [...], "answer_start": [...]}``.

A question without answers is unanswerable by its text (SQuAD 2.0). Invalid questions, for example with an answer that
is not at the stated position, are rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import not_a_file_reason, utf8_text
from tecoinfer_modelzoo.text import one_line, shown_value
from utils.datasets.base import ListDataset, Rejected

UNANSWERABLE, LANGUAGE = "unanswerable", "language"
"""Keys of notes: whether any question has no answer; ``zh`` or ``en``."""

CHINESE = 0.3
"""Minimum share of Chinese characters for questions in Chinese."""


class Question(NamedTuple):
    """A question on a text; ``key`` is its id in the file, for saved answers."""

    question: str
    context: str
    key: str = ""


class Asked(NamedTuple):
    """A question of a file before validation; values may be of any JSON type."""

    where: str
    unit: str
    key: Any
    question: Any
    context: Any
    answers: Any
    impossible: Any = None


def load_questions(path: Path, *, answers: bool = True) -> ListDataset:
    """Return the questions of a ``.json`` or ``.jsonl`` file; targets are tuples of correct answers.

    They are empty for unanswerable questions, and ``None`` without ``answers``. Questions on the same text are one
    unit, because they are not independent. Raises DataError if the file cannot be read, or no question can be used.
    """
    found, rejected = list[tuple[Question, tuple[str, ...], str]](), list[Rejected]()
    keys = set[str]()
    for asked in _asked(path):
        try:
            question, right = _checked(asked, answers)
            if question.key in keys:
                raise ValueError(f"another question has the same id {shown_value(question.key)}; ids must differ")
        except ValueError as error:
            rejected.append(Rejected(Path(asked.where), str(error)))
            continue
        keys.add(question.key)
        found.append((question, right, asked.unit))
    if not found:
        first = f" ({rejected[0].path}: {rejected[0].reason})" if rejected else ""
        raise DataError(f"{path} has no question that can be used{first}; see docs/reference/nlp.md for the formats")
    questions = [question for question, _, _ in found]
    targets = [right for _, right, _ in found] if answers else None
    if targets is not None and not any(targets):
        targets = None  # a file without answers
    notes = {UNANSWERABLE: targets is not None and not all(targets), LANGUAGE: language_of(questions)}
    return ListDataset(
        questions,
        targets,
        names=[question.key for question in questions],
        units=[unit for _, _, unit in found],
        files=[path],
        rejected=rejected,
        notes=notes,
    )


def language_of(questions: Sequence[Question]) -> str:
    """Return ``zh`` if the questions are written with Chinese characters, else ``en``."""
    letters = [letter for question in questions[:200] for letter in question.question if letter.isalpha()]
    chinese = sum("\u3400" <= letter <= "\u9fff" for letter in letters)
    return "zh" if letters and chinese > CHINESE * len(letters) else "en"


def _asked(path: Path) -> Iterator[Asked]:
    """Yield the questions of a file in order, before validation."""
    if not path.is_file():
        raise DataError(f"data path {path} {not_a_file_reason(path)}; pass a .json or .jsonl file of questions")
    text = utf8_text(path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix.lower() != ".jsonl" and "\n{" not in text:
            reason = one_line(error)
            raise DataError(f"{path} is not JSON ({reason}); it may be truncated: get the file again") from error
        yield from _lines(text, path)
        return
    if isinstance(whole, dict) and isinstance(whole.get("data"), list):
        for place, article in enumerate(whole["data"]):
            yield from _article(article, path, place)
    elif isinstance(whole, list):
        for place, entry in enumerate(whole):
            yield from _entry(entry, f"{path}: entry {place + 1}", str(place))
    elif isinstance(whole, dict) and "question" in whole:
        yield from _entry(whole, f"{path}:1", "0")
    else:
        raise DataError(
            f"{path}: no 'data' with paragraphs, and no list of questions; see docs/reference/nlp.md for the formats"
        )


def _lines(text: str, path: Path) -> Iterator[Asked]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield Asked(f"{path}:{number}", "", None, error, None, None)
            continue
        yield from _entry(entry, f"{path}:{number}", str(number - 1))


def _article(article: Any, path: Path, place: int) -> Iterator[Asked]:
    paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
    where = f"{path}: article {place + 1}"
    if not isinstance(paragraphs, list):
        yield Asked(where, "", None, ValueError("it has no list of paragraphs"), None, None)
        return
    for number, paragraph in enumerate(paragraphs):
        yield from _entry(paragraph, f"{where}, paragraph {number + 1}", f"{place}.{number}")


def _entry(entry: Any, where: str, unit: str) -> Iterator[Asked]:
    """Yield the questions of a paragraph, or the one of a flat entry."""
    if not isinstance(entry, dict):
        yield Asked(where, unit, None, ValueError("it is not an object"), None, None)
        return
    context = entry.get("context", entry.get("context_text"))
    if "qas" not in entry:
        flat = entry.get("answers", entry.get("answer"))
        key = entry.get("id", unit)
        shared = context if isinstance(context, str) else unit  # questions on the same text are one unit
        unit = sha256(shared.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        yield Asked(where, unit, key, entry.get("question"), context, flat, entry.get("is_impossible"))
        return
    qas = entry["qas"] if isinstance(entry["qas"], list) else []
    if not qas:
        yield Asked(where, unit, None, ValueError("its qas is not a list of questions"), None, None)
    for place, one in enumerate(qas):
        if not isinstance(one, dict):
            yield Asked(f"{where}, question {place + 1}", unit, None, ValueError("it is not an object"), None, None)
            continue
        key = one.get("id", one.get("query_id", f"{unit}.{place}"))
        question = one.get("question", one.get("query_text"))
        shown = f"{where}, question {shown_value(key) if isinstance(key, (str, int)) else place + 1}"
        yield Asked(shown, unit, key, question, context, one.get("answers"), one.get("is_impossible"))


def _checked(asked: Asked, answers: bool) -> tuple[Question, tuple[str, ...]]:
    """Return a question and its correct answers; raise ValueError if it is invalid."""
    if isinstance(asked.question, Exception):
        cause = asked.question
        raise ValueError(f"not JSON ({one_line(cause)})" if isinstance(cause, json.JSONDecodeError) else str(cause))
    for name, text in (("question", asked.question), ("context", asked.context)):
        if not isinstance(text, str):
            raise ValueError(f"it has no {name}")
        if not text.strip():
            raise ValueError(f"its {name} is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"its {name} has half of a surrogate pair")
    if not isinstance(asked.key, (str, int)):
        raise ValueError(f"its id {shown_value(asked.key)} is not a text or an integer")
    question = Question(asked.question, asked.context, str(asked.key))
    if not answers or asked.impossible is True:
        return question, ()
    right = tuple(_right(text, start, asked.context) for text, start in _answers(asked.answers))
    if asked.impossible is False and not right:
        raise ValueError("it has no answers, but is_impossible is false")
    return question, right


def _answers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield text and start of each answer in any format; the start is ``None`` if it is not stated."""
    if value is None:
        return
    if isinstance(value, str):
        yield value, None
    elif isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        texts = [texts] if isinstance(texts, str) else texts
        starts = [starts] if isinstance(starts, int) else starts
        if not isinstance(texts, list) or not (
            starts is None or (isinstance(starts, list) and len(starts) == len(texts))
        ):
            raise ValueError("its answers have different numbers of texts and starts")
        yield from zip(texts, starts or [None] * len(texts), strict=True)
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, Mapping):
                yield one.get("text"), one.get("answer_start")
            else:
                yield one, None
    else:
        raise ValueError("its answers are neither texts nor a list of them")


def _right(text: Any, start: Any, context: str) -> str:
    """Return an answer if it is at its position in the context; one without a position may be anywhere."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an answer {shown_value(text)} is not a text")
    shown = one_line(repr(text))[:60]
    if start is None or start == -1:  # -1 in CMRC: unknown
        if text not in context:
            raise ValueError(f"its answer {shown} is not in the context")
        return text
    if type(start) is not int or start < 0:
        raise ValueError(f"answer_start {shown_value(start)} of {shown} is not a position")
    if context[start : start + len(text)] != text:
        there = context.find(text)
        real = f"it is at {there}" if there >= 0 else "it is nowhere in the context"
        raise ValueError(f"answer_start {shown_value(start)} is not the position of {shown}; {real}")
    return text
