"""Ratings of items by users, with fields of both: the layouts of MovieLens, and RecBole's format."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.trees import below
from utils.datasets.base import Rejected, check_exists
from utils.datasets.text.tables import rejected_line, utf8_or_latin1

SEPARATOR = "|"
"""Separator of several values in one field, such as the genres of a film."""

GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama"),
    *("Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
"""Meaning of the 19 flags in ``u.item``, unless ``u.genre`` is next to it."""


class Ratings(NamedTuple):
    """Ratings with users, items and times.

    Attributes:
        users, items: int64 R, indices into ``user_names`` and ``item_names``, which are in order of the first rating.
        ratings: float32 R.
        times: float64 R, seconds since 1970, NaN if the file has no times.
        user_names, item_names: the ids in the files.
        user_fields, item_fields: other fields by name, a text per user or item; empty if unknown. Several values are
            separated by :data:`SEPARATOR`.
        titles: display name of each item; its id if unknown.
        rejected: lines that cannot be used. files: the files read.
    """

    users: Array
    items: Array
    ratings: Array
    times: Array
    user_names: list[str]
    item_names: list[str]
    user_fields: dict[str, list[str]]
    item_fields: dict[str, list[str]]
    titles: list[str]
    rejected: Sequence[Rejected] = ()
    files: Sequence[Path] = ()


Entries = Iterator[tuple[int, Sequence[str]]]
"""Line numbers and fields of the lines of a file."""

Side = dict[str, dict[str, str]]
"""Fields by id: field name -> value."""

EntryReader = Callable[[Path, list[Rejected]], Entries]
SideReader = Callable[[Path, list[Rejected]], Side]
"""Readers of a file, which add the lines that cannot be used to the rejected ones."""


class _Layout(NamedTuple):
    """Layout of a data set on disk.

    Attributes:
        pattern: file name pattern of the ratings.
        read: returns the fields of each rating of a file: user, item, rating, and optionally the time.
        users, items: return fields and files for a file of ratings.
    """

    pattern: str
    read: EntryReader
    users: Callable[[Path, list[Rejected]], tuple[Side, list[Path]]]
    items: Callable[[Path, list[Rejected]], tuple[Side, list[Path]]]


def is_ratings(path: Path) -> bool:
    """Return whether a path has ratings in a layout of :func:`read_ratings`, by the names of the files."""
    return path.exists() and bool(_candidates(path))


def read_ratings(path: str | Path) -> Ratings:
    """Read ratings, and the files on users and items next to them.

    - ``NAME.inter`` with ``NAME.user`` and ``NAME.item`` (RecBole's atomic files: tabs, header ``user_id:token ...``);
    - ``u.data`` (or another file of that ending) with ``u.user``, ``u.item`` and ``u.genre`` (MovieLens 100K);
    - ``ratings.dat`` with ``users.dat`` and ``movies.dat``, fields separated by ``::`` (MovieLens 1M and 10M);
    - ``ratings.csv`` with ``movies.csv`` (MovieLens 20M, 25M, latest).

    The path is the file of ratings, its folder (at any depth), or ``fetch:ml_100k/...`` into a package. Only this file
    is required. Films have the fields ``title``, ``year`` and ``genres`` in each layout, users ``age``, ``gender``,
    ``occupation`` and ``zip`` if the files have them. Text is UTF-8, or else Latin-1. Raises DataError if the path has
    none or several such files, or no line can be used, and FetchError if the package cannot be fetched.
    """
    if str(path).startswith("fetch:"):
        from utils.fetch import fetched_path

        path = fetched_path(path)
    path = Path(path)
    check_exists(path)
    file, layout = _found(path)
    rejected: list[Rejected] = []
    columns = _columns(file, layout.read(file, rejected), rejected)
    people, about_people = layout.users(file, rejected)
    films, about_films = layout.items(file, rejected)
    user_names, users = _numbered(columns[0])
    item_names, items = _numbered(columns[1])
    item_fields = _fields(item_names, films)
    return Ratings(
        users,
        items,
        np.array(columns[2], np.float32),
        np.array(columns[3], np.float64),
        user_names,
        item_names,
        _fields(user_names, people),
        item_fields,
        _titles(item_names, item_fields),
        rejected,
        [file, *about_people, *about_films],
    )


def _found(path: Path) -> tuple[Path, _Layout]:
    """Return the only file of ratings at a path, and its layout."""
    found = _candidates(path)
    patterns = ", ".join(layout.pattern for layout in LAYOUTS)
    if not found:
        raise DataError(f"{path}: no file of ratings; pass a folder with one of {patterns}, or such a file")
    if len(found) > 1:
        names = ", ".join(str(file.relative_to(path)) for file, _ in found[:4])
        raise DataError(f"{path}: {len(found)} files of ratings ({names}); pass the path of one of them")
    return found[0]


def _candidates(path: Path) -> list[tuple[Path, _Layout]]:
    if path.is_file():
        return [(path, layout) for layout in LAYOUTS if path.match(layout.pattern)][:1]
    found = [(file, layout) for layout in LAYOUTS for file in sorted(path.glob(layout.pattern))]
    if found:
        return found
    return [(file, layout) for layout in LAYOUTS for file in sorted(below(path, layout.pattern))]


def _columns(
    file: Path, entries: Entries, rejected: list[Rejected]
) -> tuple[list[str], list[str], list[float], list[float]]:
    """Return users, items, ratings and times of the valid lines."""
    users, items, ratings, times = list[str](), list[str](), list[float](), list[float]()
    for number, fields in entries:
        try:
            user, item, rating, time = fields[0], fields[1], float(fields[2]), _time(fields)
        except (IndexError, ValueError):
            why = f"{' '.join(fields)[:60]!r} is not a rating; write user, item, a number, and a time in seconds"
            rejected.append(rejected_line(file, number, why))
            continue
        if not user or not item or not abs(rating) < _HIGHEST or math.isinf(time):
            why = "a user, an item or a finite number is missing; write user, item, a number, and a time in seconds"
            rejected.append(rejected_line(file, number, why))
            continue
        users.append(user)
        items.append(item)
        ratings.append(rating)
        times.append(time)
    if not users:
        why = f": {rejected[0].path}: {rejected[0].reason}" if rejected else ", it is empty"
        raise DataError(f"{file}: no line is a rating{why}")
    return users, items, ratings, times


_HIGHEST = 1e30
"""Upper limit of valid ratings."""


def _time(fields: Sequence[str]) -> float:
    return float(fields[3]) if len(fields) > 3 and fields[3] else math.nan


def _numbered(values: Sequence[str]) -> tuple[list[str], Array]:
    """Return the distinct values in order of first occurrence, and the index of each value."""
    places: dict[str, int] = {}
    numbers = np.fromiter((places.setdefault(value, len(places)) for value in values), np.int64, len(values))
    return list(places), numbers


def _fields(names: Sequence[str], side: Side) -> dict[str, list[str]]:
    keys = dict.fromkeys(key for entry in side.values() for key in entry)
    return {key: [side.get(name, {}).get(key, "") for name in names] for key in keys}


def _titles(names: Sequence[str], fields: Mapping[str, Sequence[str]]) -> list[str]:
    titles, years = fields.get("title", [""] * len(names)), fields.get("year", [""] * len(names))
    shown = [f"{title} ({year})" if title and year else title for title, year in zip(titles, years, strict=True)]
    return [title or name for title, name in zip(shown, names, strict=True)]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a file with their numbers."""
    text = utf8_or_latin1(file)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.rstrip("\r")


def _split(between: str) -> EntryReader:
    def read(file: Path, rejected: list[Rejected]) -> Entries:
        return ((number, line.split(between)) for number, line in _lines(file))

    return read


def _named_entries(
    file: Path, lines: Iterable[tuple[int, Sequence[str]]], rejected: list[Rejected]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines below the header as fields by column name, without RecBole's types (``:token``)."""
    head: list[str] | None = None
    for number, fields in lines:
        if head is None:
            head = [field.partition(":")[0].strip() for field in fields]
        elif len(fields) != len(head):
            why = f"{len(fields)} fields, expected {len(head)}; correct the line"
            rejected.append(rejected_line(file, number, why))
        else:
            yield number, dict(zip(head, fields, strict=True))


_COLUMNS = (("user_id", "userId"), ("item_id", "movieId", "itemId"), ("rating",), ("timestamp", "time"))


def _by_columns(lines: EntryReader) -> EntryReader:
    """Return a reader of user, item, rating and time by the names of their columns."""

    def read(file: Path, rejected: list[Rejected]) -> Entries:
        used: list[str] | None = None
        for number, entry in _named_entries(file, lines(file, rejected), rejected):
            if used is None:
                found = [next((name for name in known if name in entry), None) for known in _COLUMNS]
                lost = next((_COLUMNS[place][0] for place in range(3) if found[place] is None), None)
                if lost is not None:
                    raise DataError(f"{file}: no column {lost!r} among {', '.join(entry)}; name the columns in line 1")
                used = [name for name in found if name is not None]
            yield number, [entry[name] for name in used]

    return read


def _csv_lines(file: Path, rejected: list[Rejected]) -> Entries:
    for number, line in _lines(file):
        if '"' not in line:
            yield number, line.split(",")
            continue
        try:
            yield number, next(csv.reader([line], strict=True))
        except csv.Error as error:
            why = f"not CSV ({error}); put the text in double quotes, and double those within it"
            rejected.append(rejected_line(file, number, why))


_RENAMED = {"movie_title": "title", "release_year": "year", "class": "genres", "zip_code": "zip"}
"""Field names: RecBole's -> those of MovieLens' own layouts."""

_YEAR = re.compile(r"^(.*?)\s*\((\d{4})\)\s*$")

_PEOPLE_100K = ("age", "gender", "occupation", "zip")
_PEOPLE_1M = ("gender", "age", "occupation", "zip")


def _beside(name: str, read: SideReader) -> Callable[..., tuple[Side, list[Path]]]:
    """Return a reader of an optional file next to the ratings; ``*`` in its name stands for their stem."""

    def found(ratings: Path, rejected: list[Rejected]) -> tuple[Side, list[Path]]:
        file = ratings.with_name(name.replace("*", ratings.stem))
        return (read(file, rejected), [file]) if os.path.lexists(file) else ({}, [])

    return found


def _recbole(key: str) -> SideReader:
    def read(file: Path, rejected: list[Rejected]) -> Side:
        side: Side = {}
        for _, entry in _named_entries(file, _split("\t")(file, rejected), rejected):
            name = entry.pop(key, "")
            side[name] = {_RENAMED.get(field, field): value for field, value in entry.items()}
            if "genres" in side[name]:
                side[name]["genres"] = SEPARATOR.join(side[name]["genres"].split())
        return side

    return read


def _people(between: str, fields: Sequence[str]) -> SideReader:
    def read(file: Path, rejected: list[Rejected]) -> Side:
        side: Side = {}
        for number, line in _lines(file):
            values = line.split(between)
            if len(values) == len(fields) + 1:
                side[values[0]] = dict(zip(fields, values[1:], strict=True))
            else:
                why = f"{len(values)} fields, expected {len(fields) + 1}; correct the line"
                rejected.append(rejected_line(file, number, why))
        return side

    return read


def _film(title: str, genres: str) -> dict[str, str]:
    """Return the fields of a film whose title may end in a year."""
    known = _YEAR.match(title)
    name, year = (known[1], known[2]) if known else (title.strip(), "")
    return {"title": name, "year": year, "genres": genres}


def _films_100k(file: Path, rejected: list[Rejected]) -> Side:
    side, listed = Side(), file.with_name("u.genre")
    names = [line.partition("|")[0] for _, line in _lines(listed)] if os.path.lexists(listed) else GENRES
    for number, line in _lines(file):
        values = line.split("|")
        flags = values[5:]
        if len(flags) != len(names) or not set(flags) <= {"0", "1"}:
            why = f"expected {len(names)} genre flags, each 0 or 1, after 5 fields; correct the line"
            rejected.append(rejected_line(file, number, why))
            continue
        genres = SEPARATOR.join(name for name, flag in zip(names, flags, strict=True) if flag == "1")
        side[values[0]] = _film(values[1], genres)
    return side


def _films(lines: EntryReader) -> SideReader:
    def read(file: Path, rejected: list[Rejected]) -> Side:
        side: Side = {}
        for number, values in lines(file, rejected):
            if len(values) != 3:
                why = f"{len(values)} fields, expected 3: id, title, genres; correct the line"
                rejected.append(rejected_line(file, number, why))
            elif values[0] != "movieId":
                side[values[0]] = _film(values[1], "" if values[2] == "(no genres listed)" else values[2])
        return side

    return read


LAYOUTS = (
    _Layout(
        *("*.inter", _by_columns(_split("\t"))),
        *(_beside("*.user", _recbole("user_id")), _beside("*.item", _recbole("item_id"))),
    ),
    _Layout("u*.data", _split("\t"), _beside("u.user", _people("|", _PEOPLE_100K)), _beside("u.item", _films_100k)),
    _Layout(
        *("ratings.dat", _split("::")),
        *(_beside("users.dat", _people("::", _PEOPLE_1M)), _beside("movies.dat", _films(_split("::")))),
    ),
    _Layout("ratings.csv", _by_columns(_csv_lines), lambda *_: ({}, []), _beside("movies.csv", _films(_csv_lines))),
)
"""Supported layouts, by the name of the file of ratings."""
