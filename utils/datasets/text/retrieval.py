"""Queries, a corpus to search, and relevance judgments: BEIR's folders, TREC qrels, MS MARCO's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import not_a_file_reason
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.datasets.text.tables import is_text, read_lines, read_table, rejected_line

CORPUS, UNJUDGED, CANDIDATES = "corpus", "unjudged", "candidates"
"""Keys of notes: the :class:`Corpus`, the number of queries without judgments, and optionally candidates by query:
indices into the corpus, the best first."""

ID = ("_id", "id", "pid", "qid", "docid", "doc_id", "query_id")
TEXT = ("text", "contents", "passage", "query", "body")
"""Accepted column names."""

CORPUS_FILES = ("corpus.jsonl", "collection.tsv", "corpus.tsv", "corpus.txt")
QUERY_FILES = ("queries.jsonl", "queries.tsv", "queries.{split}.tsv", "queries.txt")
QREL_FILES = ("qrels/{split}.tsv", "qrels/{split}.txt", "qrels.{split}.tsv", "qrels.tsv", "qrels.txt")
"""Names of files in a folder, in order of precedence."""


class Query(NamedTuple):
    """A query and its id."""

    id: str
    text: str


class Corpus(NamedTuple):
    """Passages and their ids, in the order of the file."""

    ids: list[str]
    texts: list[str]


class Texts(NamedTuple):
    """Texts by id, in the order of a file, and the rejected lines."""

    texts: dict[str, str]
    rejected: list[Rejected]


class Asked(NamedTuple):
    """The files of a data set: passages, and ``None`` for each missing one of the others."""

    corpus: Path
    queries: Path | None
    qrels: Path | None
    candidates: Path | None


def files_of(paths: Mapping[str, Path], split: str) -> Asked:
    """Return the files of ``corpus=B queries=A qrels=C candidates=D``, or of a folder.

    Raises DataError if a folder has none of the expected files, and ConfigError if no corpus is given.
    """
    unknown = sorted(set(paths) - {"data", "corpus", "queries", "qrels", "candidates"})
    if unknown:
        raise ConfigError(f"--data_path {unknown[0]}=...: retrieval takes queries=, corpus=, qrels= and candidates=")
    folder = paths.get("data")
    if folder is None:
        if "corpus" not in paths:
            raise ConfigError("--data_path has no corpus; pass a folder, or corpus=FILE queries=FILE qrels=FILE")
        return Asked(paths["corpus"], *(paths.get(name) for name in ("queries", "qrels", "candidates")))
    check_exists(folder)
    if folder.is_file():
        return Asked(folder, None, None, paths.get("candidates"))
    corpus, queries, qrels = (_in(folder, names, split) for names in (CORPUS_FILES, QUERY_FILES, QREL_FILES))
    if corpus is None:
        raise DataError(f"data folder {folder} has none of {', '.join(CORPUS_FILES)}; or pass corpus=FILE")
    chosen = (paths.get("queries", queries), paths.get("qrels", qrels))
    return Asked(paths.get("corpus", corpus), *chosen, paths.get("candidates"))


def _in(folder: Path, names: Sequence[str], split: str) -> Path | None:
    return next((file for name in names if (file := folder / name.format(split=split)).is_file()), None)


def load_retrieval(asked: Asked, *, judged: bool, typed: Sequence[str] = ()) -> ListDataset:
    """Load queries, or those ``typed``; the note :data:`CORPUS` is the corpus, targets are grades by id if ``judged``.

    A text is an object per line with ``_id`` and ``text`` (and ``title``, which is prepended) in ``.jsonl``, an id and
    a text separated by a tab in ``.tsv`` (with or without column names), or a line of ``.txt``, whose id is its number.
    Qrels are ``query passage grade`` (with or without column names) or TREC's ``query 0 passage grade``; candidates are
    a TREC run: ``query Q0 passage rank score name``.

    In ``rejected`` are: invalid lines, empty texts, duplicate ids (the first is kept), qrels and candidates with
    unknown ids, and judged queries without a relevant passage. Queries without judgments belong to another split, and
    are only counted. Raises DataError if queries or passages are missing.
    """
    corpus = read_texts(asked.corpus)
    if not corpus.texts:
        raise DataError(f"{asked.corpus} has no passage that can be used; check the file")
    if typed:
        queries = Texts({f"text {i + 1}" if len(typed) > 1 else "text": text for i, text in enumerate(typed)}, [])
    elif asked.queries is None:
        raise DataError(f"queries for {asked.corpus} are missing; pass queries=FILE with corpus=FILE, or --text")
    else:
        queries = read_texts(asked.queries)
    rejected = [*corpus.rejected, *queries.rejected]
    grades: dict[str, dict[str, int]] = {}
    if judged and asked.qrels is not None:
        grades, bad = read_qrels(asked.qrels, queries.texts, corpus.texts)
        rejected += bad
    notes: dict[str, Any] = {CORPUS: Corpus([*corpus.texts], [*corpus.texts.values()])}
    if asked.candidates is not None:
        notes[CANDIDATES], bad = read_candidates(asked.candidates, queries.texts, corpus.texts)
        rejected += bad
    kept = [Query(*item) for item in queries.texts.items()]
    if grades:
        notes[UNJUDGED] = sum(query.id not in grades for query in kept)
        kept, bad = _answerable(kept, grades, asked)
        rejected += bad
    if not kept:
        first = f" ({rejected[-1].path.name}: {rejected[-1].reason})" if rejected else ""
        raise DataError(f"{asked.queries} has no query that can be used{first}; check the files")
    targets = [grades[query.id] for query in kept] if grades else None
    files = [file for file in asked if file is not None]
    return ListDataset(kept, targets, names=[q.id for q in kept], files=files, rejected=rejected, notes=notes)


def _answerable(
    queries: Sequence[Query], grades: Mapping[str, Mapping[str, int]], asked: Asked
) -> tuple[list[Query], list[Rejected]]:
    """Return the judged queries with a relevant passage, and those without one."""
    kept, rejected = [], []
    for query in queries:
        if any(grade > 0 for grade in grades.get(query.id, {}).values()):
            kept.append(query)
        elif query.id in grades:
            rejected.append(Rejected(Path(query.id), f"{asked.qrels} has no relevant passage of the corpus for it"))
    return kept, rejected


def read_texts(file: Path) -> Texts:
    """Return the texts of a file by id. Raises DataError if the file cannot be read, or has unknown columns."""
    if not file.is_file():
        raise DataError(f"{file} {not_a_file_reason(file)}; check --data_path")
    found: dict[str, str] = {}
    rejected: list[Rejected] = []
    for name, text, number in _entries(file, rejected):
        if not text.strip():
            rejected.append(rejected_line(file, number, f"the text of {name!r} is empty"))
        elif not name or len(name.split()) != 1:
            rejected.append(rejected_line(file, number, f"{name!r} is not an id: expected one word without spaces"))
        elif name in found:
            rejected.append(rejected_line(file, number, f"{name!r} occurs again; the first text is kept"))
        else:
            found[name] = text
    return Texts(found, rejected)


def _entries(file: Path, rejected: list[Rejected]) -> Iterator[tuple[str, str, int]]:
    ending = file.suffix.lower()
    if ending == ".txt":
        yield from ((str(number), line.strip(), number) for number, line in _lines(file, rejected))
    elif ending == ".jsonl":
        yield from _of_objects(file, rejected)
    else:
        yield from _of_fields(file, rejected)


def _lines(file: Path, rejected: list[Rejected]) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines with their numbers; lines that are not text are rejected."""
    for number, line in read_lines(file):
        if line.strip() and is_text(line):
            yield number, line
        elif line.strip():
            rejected.append(rejected_line(file, number, "not UTF-8 text; save the file as UTF-8"))


def _of_objects(file: Path, rejected: list[Rejected]) -> Iterator[tuple[str, str, int]]:
    found = read_table(file)
    rejected += found.rejected
    id_key, text_key = (next((key for key in keys if key in found.columns), None) for keys in (ID, TEXT))
    if found.rows and (id_key is None or text_key is None):
        raise DataError(f"{file}: its keys are {found.listed()}; expected _id and text")
    for row in found.rows:
        name, text, title = row.values.get(id_key or ""), row.values.get(text_key or ""), row.values.get("title") or ""
        wrong = isinstance(name, bool) or not isinstance(name, (str, int)) or not isinstance(text, str)
        if wrong or not isinstance(title, str):
            rejected.append(found.reject(row, f"no {id_key} and {text_key} that are text"))
        else:
            yield str(name), f"{title.strip()} {text}".strip(), row.number


def _of_fields(file: Path, rejected: list[Rejected]) -> Iterator[tuple[str, str, int]]:
    """Yield rows separated by tabs: id and text, or id, title and text if the first line names them."""
    columns: tuple[int, int, int | None] | None = None
    for number, line in _lines(file, rejected):
        fields = [field.strip() for field in line.split("\t")]
        if columns is None:
            names = [field.lower() for field in fields]
            known = [next((names.index(key) for key in keys if key in names), None) for keys in (ID, TEXT)]
            columns = (0, 1, None)
            if known[0] is not None and known[1] is not None:
                columns = known[0], known[1], names.index("title") if "title" in names else None
                continue
        id_at, text_at, title_at = columns
        if len(fields) <= max(id_at, text_at, title_at or 0):
            why = f"{len(fields)} fields between tabs; expected an id and a text"
            rejected.append(rejected_line(file, number, why))
            continue
        title = f"{fields[title_at]} " if title_at is not None else ""
        yield fields[id_at], f"{title}{fields[text_at]}".strip(), number


def read_qrels(
    file: Path, queries: Mapping[str, Any], passages: Mapping[str, Any]
) -> tuple[dict[str, dict[str, int]], list[Rejected]]:
    """Return grades by query and passage, and the lines that are invalid or have unknown ids.

    Raises DataError if the file cannot be read, or has no usable judgment.
    """
    if not file.is_file():
        raise DataError(f"{file} {not_a_file_reason(file)}; check --data_path")
    grades: dict[str, dict[str, int]] = {}
    rejected: list[Rejected] = []
    for start, (number, line) in enumerate(_lines(file, rejected)):
        fields = line.split()
        query, passage, grade = (fields[0], fields[-2], fields[-1]) if len(fields) in (3, 4) else ("", "", "")
        if start == 0 and grade and not _is_grade(grade):
            continue  # column names
        if not _is_grade(grade):
            rejected.append(rejected_line(file, number, "expected: query passage grade, or: query 0 passage grade"))
        elif query not in queries:
            rejected.append(rejected_line(file, number, f"unknown query {query!r}"))
        elif passage not in passages:
            rejected.append(rejected_line(file, number, f"unknown passage {passage!r}"))
            grades.setdefault(query, {})
        elif passage in grades.get(query, {}):
            why = f"judges {passage!r} for {query!r} again; the first grade is kept"
            rejected.append(rejected_line(file, number, why))
        else:
            grades.setdefault(query, {})[passage] = int(grade)
    if not any(grades.values()):
        why = f"; line {rejected[0].path.name.rpartition(':')[2]}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file} has no grade for a query and a passage of the data{why}; check that the files match")
    return grades, rejected


def _is_grade(text: str) -> bool:
    return text.removeprefix("-").isdigit() and text.isascii() and len(text) < 10


def read_candidates(
    file: Path, queries: Mapping[str, Any], passages: Mapping[str, Any]
) -> tuple[dict[str, list[int]], list[Rejected]]:
    """Return corpus indices by query, sorted by the scores of a TREC run, and the rejected lines.

    Raises DataError if the file cannot be read, or no line can be used.
    """
    if not file.is_file():
        raise DataError(f"{file} {not_a_file_reason(file)}; check --data_path")
    places = {name: i for i, name in enumerate(passages)}
    found: dict[str, dict[int, float]] = {}
    rejected: list[Rejected] = []
    for number, line in _lines(file, rejected):
        fields = line.split()
        try:
            query, passage, score = fields[0], fields[2], float(fields[4])
            if math.isnan(score):
                raise ValueError(fields[4])
        except (IndexError, ValueError):
            rejected.append(rejected_line(file, number, "expected: query Q0 passage rank score name"))
            continue
        if query not in queries or passage not in places:
            what = f"query {query!r}" if query not in queries else f"passage {passage!r} in the corpus"
            rejected.append(rejected_line(file, number, f"unknown {what}"))
            continue
        found.setdefault(query, {})[places[passage]] = score
    if not found:
        why = f"; line {rejected[0].path.name.rpartition(':')[2]}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file} has no candidate for any query{why}; check that the files match")
    return {query: sorted(some, key=lambda i: -some[i]) for query, some in found.items()}, rejected
