"""Questions on texts, with their answers where they are known: SQuAD 1.1 and 2.0, CMRC 2018, flat JSON lines.

- SQuAD (Rajpurkar et al., 2016 and 2018): ``data``, a list of articles with ``paragraphs``: a ``context`` and ``qas``.
- CMRC 2018 (Cui et al., 2019): the same, or a list of entries with ``context_text`` and ``qas`` with ``query_text``.
- flat: objects with ``question``, ``context`` and ``answers``, one per line or in one list. ``answers`` is a text, a
  list of texts, or as SQuAD's or the hub's data sets have it: ``{"text": [...], "answer_start": [...]}``.

A question without answers is one that its text does not answer (SQuAD 2.0). What cannot be used, such as an answer that
does not stand where the file says, costs that question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import no_file, utf8_text
from tecoinfer_modelzoo.text import one_line, shown_value
from utils.datasets.base import ListDataset, Rejected

UNANSWERABLE, LANGUAGE = "unanswerable", "language"
"""Keys of what is known of the data: whether any question has no answer; ``zh`` or ``en``."""

CHINESE = 0.3
"""Share of Chinese characters in the questions from which they are taken for Chinese."""


class Question(NamedTuple):
    """What is asked of a text.

    Attributes:
        question, context: texts. key: its name in the file, for saved answers.
    """

    question: str
    context: str
    key: str = ""


class Asked(NamedTuple):
    """A question of a file, before it is checked; each may be anything that JSON can hold."""

    where: str
    unit: str
    key: Any
    question: Any
    context: Any
    answers: Any
    impossible: Any = None


def load_questions(path: Path, *, answers: bool = True) -> ListDataset:
    """Return the questions of a file; targets are tuples of right answers, empty where the text does not answer.

    Questions on one text are of one unit: they are not independent.

    Args:
        path: a ``.json`` or ``.jsonl`` file. answers: whether they are wanted; where they are not, those in the file
            are not looked at, and there are no targets.

    Raises:
        DataError: the file cannot be read, or no question in it can be used.
    """
    found, rejected = list[tuple[Question, tuple[str, ...], str]](), list[Rejected]()
    keys = set[str]()
    for asked in _asked(path):
        try:
            question, right = _checked(asked, answers)
            if question.key in keys:
                raise ValueError(f"another question has its id {shown_value(question.key)}; ids must differ")
        except ValueError as error:
            rejected.append(Rejected(Path(asked.where), str(error)))
            continue
        keys.add(question.key)
        found.append((question, right, asked.unit))
    if not found:
        first = f" ({rejected[0].path}: {rejected[0].reason})" if rejected else ""
        raise DataError(f"{path} holds no question that can be used{first}; see docs/nlp.md for what is read")
    questions = [question for question, _, _ in found]
    targets = [right for _, right, _ in found] if answers else None
    if targets is not None and not any(targets):
        targets = None  # only asked
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
    """Return ``zh`` where the questions are written with Chinese characters, else ``en``."""
    letters = [letter for question in questions[:200] for letter in question.question if letter.isalpha()]
    chinese = sum("\u3400" <= letter <= "\u9fff" for letter in letters)
    return "zh" if letters and chinese > CHINESE * len(letters) else "en"


def _asked(path: Path) -> Iterator[Asked]:
    """Yield the questions of a file as they stand in it."""
    if not path.is_file():
        raise DataError(f"data path {path} {no_file(path)}; give a .json or .jsonl file of questions")
    text = utf8_text(path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        if path.suffix.lower() != ".jsonl" and "\n{" not in text:
            raise DataError(
                f"{path} is not JSON ({one_line(error)}); it may be cut short: get the file again"
            ) from error
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
            f"{path}: no 'data' with paragraphs, and no list of questions; see docs/nlp.md for what is read"
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
    """Yield the questions of a paragraph, or the one that an entry is."""
    if not isinstance(entry, dict):
        yield Asked(where, unit, None, ValueError("it is no object"), None, None)
        return
    context = entry.get("context", entry.get("context_text"))
    if "qas" not in entry:
        flat = entry.get("answers", entry.get("answer"))
        key = entry.get("id", unit)
        shared = context if isinstance(context, str) else unit  # questions on one text are one unit
        yield Asked(where, _unit(shared), key, entry.get("question"), context, flat, entry.get("is_impossible"))
        return
    qas = entry["qas"] if isinstance(entry["qas"], list) else []
    if not qas:
        yield Asked(where, unit, None, ValueError("its qas is no list of questions"), None, None)
    for place, one in enumerate(qas):
        if not isinstance(one, dict):
            yield Asked(f"{where}, question {place + 1}", unit, None, ValueError("it is no object"), None, None)
            continue
        key = one.get("id", one.get("query_id", f"{unit}.{place}"))
        question = one.get("question", one.get("query_text"))
        told = (
            f"{where}, question {shown_value(key)}" if isinstance(key, (str, int)) else f"{where}, question {place + 1}"
        )
        yield Asked(told, unit, key, question, context, one.get("answers"), one.get("is_impossible"))


def _unit(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _checked(asked: Asked, answers: bool) -> tuple[Question, tuple[str, ...]]:
    """Return a question and its right answers; ValueError says what is wrong with it."""
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
        raise ValueError(f"its id {shown_value(asked.key)} is no text")
    question = Question(asked.question, asked.context, str(asked.key))
    if not answers or asked.impossible is True:
        return question, ()
    right = tuple(_right(text, start, asked.context) for text, start in _answers(asked.answers))
    if asked.impossible is False and not right:
        raise ValueError("it has no answers, and is_impossible is false")
    return question, right


def _answers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield text and beginning of each answer, whatever the form; the beginning ``None`` where it is not told."""
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
            raise ValueError("its answers are not as many texts as beginnings")
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
    """Return an answer that stands in the context where it should; one without a beginning may stand anywhere."""
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an answer {shown_value(text)} is no text")
    shown = one_line(repr(text))[:60]
    if start is None or start == -1:  # CMRC has it where nobody knows
        if text not in context:
            raise ValueError(f"its answer {shown} is not in the context")
        return text
    if type(start) is not int or start < 0:
        raise ValueError(f"answer_start {shown_value(start)} of {shown} is no place")
    if context[start : start + len(text)] != text:
        there = context.find(text)
        real = f"it is at {there}" if there >= 0 else "it is nowhere in the context"
        raise ValueError(f"answer_start {shown_value(start)} is not where {shown} stands; {real}")
    return text
