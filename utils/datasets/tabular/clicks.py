"""Rows of features with whether somebody clicked, liked or bought: of ratings, and of tables with named columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import did_you_mean
from utils.datasets.base import Batch, Dataset, ListDataset, Rejected
from utils.datasets.tabular.ratings import Ratings
from utils.datasets.tabular.splits import PARTS, split
from utils.datasets.text.tables import ENCODING, read_table

USER, ITEM = "user_id", "item_id"
"""Names of the two fields that every rating has."""

LABELS = ("label", "click", "clicked", "y", "target")
"""Names of the column that says whether somebody clicked."""

USERS = (USER, "user", "userId", "uid")
"""Names of the column of users."""

EVERY = "all"
"""The part that is everything."""

_TRUTHS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}


class Click(NamedTuple):
    """What is right for a row.

    Attributes:
        clicked: whether it was clicked (rated highly, bought). user: whose row it is; empty: nobody knows.
        baseline: the share of the item's rows in the training that were, or that of all rows where the item is new; NaN
            where there is no training to tell.
    """

    clicked: bool
    user: str = ""
    baseline: float = math.nan


@dataclass(frozen=True)
class Wanted:
    """Which rows of ratings are samples, and what counts as a click.

    Attributes:
        how, seed: of the split (:func:`.split`). part: one of its parts, or :data:`EVERY`.
        positive: the lowest rating that counts as a click.
        user: samples of this user alone; ``None``: of all, and empty: of the first one in the part.
    """

    how: str = "random"
    seed: int = 0
    part: str = "test"
    positive: float = 4.0
    user: str | None = None


class RatedRows(Dataset):
    """Ratings as rows of features: the two ids, and what is known of user and item; a unit is a user.

    Args:
        ratings: all of them. wanted: which are samples.

    Raises:
        ConfigError: there is no such user, or the part is empty.
    """

    has_units = True

    def __init__(self, ratings: Ratings, wanted: Wanted) -> None:
        self._ratings, self._wanted = ratings, wanted
        self.rejected = ratings.rejected
        parts = split(ratings.users, ratings.times, wanted.how, wanted.seed, where=str(ratings.files[0]))
        self.clicked = ratings.ratings >= wanted.positive
        self.baseline = item_means(ratings.items, self.clicked, parts == PARTS.index("train"), len(ratings.item_names))
        chosen = np.ones(len(parts), bool) if wanted.part == EVERY else parts == PARTS.index(wanted.part)
        self.places = np.flatnonzero(chosen)
        if wanted.user is not None and len(self.places):
            self.places = self.places[ratings.users[self.places] == self._user(wanted.user)]
        if not len(self.places):
            whose = f" of user {wanted.user}" if wanted.user else ""
            raise ConfigError(
                f"{ratings.files[0]}: no rating{whose} is in part {wanted.part!r} of the split {wanted.how!r}; use "
                f"another --part ({', '.join(PARTS)}, {EVERY})"
            )
        self.notes = {
            "columns": [USER, ITEM, *ratings.user_fields, *ratings.item_fields],
            "split": {
                "how": wanted.how,
                "seed": wanted.seed if wanted.how == "random" else 0,  # the others do not look at it
                "positive": wanted.positive,
                "ratings": len(parts),
            },
            "part": wanted.part,
        }

    def _user(self, name: str) -> int:
        names = self._ratings.user_names
        if name == "":
            return int(self._ratings.users[self.places[0]])
        if name not in names:
            hint = did_you_mean(name, names) or f" use one of them, such as {names[0]}"
            raise ConfigError(f"{self._ratings.files[0]}: no user {name!r} among {len(names)};{hint}")
        return names.index(name)

    def __len__(self) -> int:
        return len(self.places)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return rows with a :class:`Click` each."""
        known = self._ratings
        rows = self.places[np.asarray(places, np.intp)]
        users, items = known.users[rows].tolist(), known.items[rows].tolist()
        names = [known.user_names[user] for user in users]
        samples = [
            {USER: names[i], ITEM: known.item_names[item]}
            | {key: values[users[i]] for key, values in known.user_fields.items()}
            | {key: values[item] for key, values in known.item_fields.items()}
            for i, item in enumerate(items)
        ]
        clicked, means = self.clicked[rows].tolist(), self.baseline[items].tolist()
        targets = [Click(*one) for one in zip(clicked, names, means, strict=True)]
        told = [f"user {name}, item {known.item_names[item]}" for name, item in zip(names, items, strict=True)]
        return Batch(samples, targets, told, names)

    def fingerprint(self) -> str:
        """Return a hash of the files' content and of what is wanted of them."""
        digest = sha256(repr(self._wanted).encode("utf-8", "surrogatepass"))
        for file in self._ratings.files:
            try:
                digest.update(sha256(read_regular(file)).digest())
            except OSError:
                digest.update(b"gone")
        return digest.hexdigest()

    def watched(self) -> set[str]:
        """Return the files."""
        return {str(file) for file in self._ratings.files}


def item_means(items: Array, clicked: Array, trained: Array, count: int) -> Array:
    """Return for each item the share of its rows of the training that were clicked: what a model must beat.

    Args:
        items: int64 R. clicked, trained: bool R. count: of items.

    Returns:
        float64, one per item; for an item that the training lacks the share of all its rows, NaN where it has none.
    """
    rows = np.bincount(items[trained], minlength=count)
    clicks = np.bincount(items[trained], clicked[trained], count)
    overall = clicks.sum() / rows.sum() if rows.sum() else math.nan
    means: Array = np.where(rows > 0, clicks / np.maximum(rows, 1), overall)
    return means


def load_table(
    file: Path, label: str | None = None, user: str | None = None, only: str | None = None, encoding: str = ENCODING
) -> ListDataset:
    """Load a ``.csv``, ``.tsv`` or ``.jsonl`` file with named columns: each line a row of features.

    Args:
        file: as :func:`~utils.datasets.text.tables.read_table` takes it; quotes may stand in a ``.tsv``.
        label: the column that says 0 or 1; ``None``: one of :data:`LABELS`, and where there is none, nobody knows.
        user: the column of users, which are units; ``None``: one of :data:`USERS`, or each row is a unit of its own.
        only: rows of this user alone; empty, or ``None``: of all. encoding: of the text.

    Returns:
        Samples are mappings of texts, targets :class:`Click`, names ``file:line``. A line that cannot be used is in
        ``rejected``.

    Raises:
        DataError: the file cannot be read, or no line can be used. ConfigError: there is no such user.
    """
    table = read_table(file, quoted=True, encoding=encoding)
    column = table.column(label, LABELS, "--label")
    whose = table.column(user, USERS, "--user_column")
    if only and whose is None:
        raise ConfigError(f"{file}: no column says whose rows these are, for --user {only}; name it with --user_column")
    samples, targets, names, units = list[dict[str, str]](), list[Click](), list[str](), list[str]()
    rejected = list(table.rejected)
    for row in table.rows:
        values = {key: _text(value) for key, value in row.values.items()}
        owner = values.get(whose or "", "")
        if only and owner != only:
            continue
        truth = _TRUTHS.get(values.pop(column, "").strip().lower()) if column is not None else False
        if truth is None:
            rejected.append(table.reject(row, f"{row.values.get(column or '')!r:.40} is no label; write 0 or 1"))
            continue
        samples.append(values)
        targets.append(Click(truth, owner))
        names.append(f"{file}:{row.number}")
        units.append(owner if owner else f"line {row.number}")
    if not samples:
        raise _nothing(file, only, [values.values.get(whose or "") for values in table.rows], rejected)
    return ListDataset(
        samples,
        None if column is None else targets,
        names=names,
        units=None if whose is None else units,
        files=[file],
        rejected=rejected,
        notes={"columns": [name for name in table.columns if name != column]},
    )


def _text(value: object) -> str:
    """Return a value as text; JSON's ``null`` is a missing one, and a list several values."""
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def _nothing(file: Path, only: str | None, users: Sequence[object], rejected: Sequence[Rejected]) -> Exception:
    if only and only not in map(str, users):
        names = sorted({str(user) for user in users})
        hint = did_you_mean(only, names) or (
            f" use one of them, such as {names[0]}" if names else " the file has no row"
        )
        return ConfigError(f"{file}: no user {only!r};{hint}")
    why = (
        f": {rejected[0].path}: {rejected[0].reason}" if rejected else "; write one per line, below the columns' names"
    )
    return DataError(f"{file}: no row can be used{why}")
