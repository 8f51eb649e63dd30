"""Rows of features with binary labels such as clicks: from ratings, and from tables with named columns."""

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
"""Names of the column of labels."""

USERS = (USER, "user", "userId", "uid")
"""Names of the column of users."""

EVERY = "all"
"""Name of the part with all rows."""

_TRUTHS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}


class Click(NamedTuple):
    """Ground truth of a row.

    Attributes:
        clicked: whether it was clicked (rated highly, bought).
        user: the user of the row; empty if unknown.
        baseline: share of clicks in the item's training rows, or in all training rows for a new item; NaN without
            training rows.
    """

    clicked: bool
    user: str = ""
    baseline: float = math.nan


@dataclass(frozen=True)
class Wanted:
    """Selection of rating rows, and the definition of a click.

    Attributes:
        how, seed: of the split (:func:`.split`).
        part: one of its parts, or :data:`EVERY`.
        positive: the lowest rating that is a click.
        user: only samples of this user; ``None``: all users, empty: the first user in the part.
    """

    how: str = "random"
    seed: int = 0
    part: str = "test"
    positive: float = 4.0
    user: str | None = None


class RatedRows(Dataset):
    """Ratings as rows of features: the two ids, and the fields of user and item; a unit is a user.

    Raises ConfigError if the user does not exist, or the part is empty.
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
        seed = wanted.seed if wanted.how == "random" else 0  # the other splits do not use it
        split_notes = {"how": wanted.how, "seed": seed, "positive": wanted.positive, "ratings": len(parts)}
        columns = [USER, ITEM, *ratings.user_fields, *ratings.item_fields]
        self.notes = {"columns": columns, "split": split_notes, "part": wanted.part}

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
        shown = [f"user {name}, item {known.item_names[item]}" for name, item in zip(names, items, strict=True)]
        return Batch(samples, targets, shown, names)

    def fingerprint(self) -> str:
        """Return a hash of the files' content and of the selection."""
        digest = sha256(repr(self._wanted).encode("utf-8", "surrogatepass"))
        for file in self._ratings.files:
            try:
                digest.update(sha256(read_regular(file)).digest())
            except OSError:
                digest.update(b"gone")
        return digest.hexdigest()

    def source_files(self) -> set[str]:
        """Return the files."""
        return {str(file) for file in self._ratings.files}


def item_means(items: Array, clicked: Array, trained: Array, count: int) -> Array:
    """Return the share of clicks in the training rows of each item, the baseline that a model must exceed.

    ``items`` is int64 R, ``clicked`` and ``trained`` bool R. Returns float64 per item; for an item without training
    rows the share in all training rows, NaN if there are none.
    """
    rows = np.bincount(items[trained], minlength=count)
    clicks = np.bincount(items[trained], clicked[trained], count)
    overall = clicks.sum() / rows.sum() if rows.sum() else math.nan
    return np.asarray(np.where(rows > 0, clicks / np.maximum(rows, 1), overall))


def load_table(
    file: Path, label: str | None = None, user: str | None = None, only: str | None = None, encoding: str = ENCODING
) -> ListDataset:
    """Load a ``.csv``, ``.tsv`` or ``.jsonl`` file with named columns; each line is a row of features.

    Args:
        file: see :func:`~utils.datasets.text.tables.read_table`; a ``.tsv`` may have quoted fields.
        label: the column of labels, 0 or 1; ``None``: one of :data:`LABELS`; without one, targets are ``None``.
        user: the column of users, which are units; ``None``: one of :data:`USERS`; without one each row is a unit.
        only: only rows of this user; empty, or ``None``: all.

    Samples are mappings of texts, targets :class:`Click`, names ``file:line``. Invalid lines are in ``rejected``.
    Raises DataError if the file cannot be read, or no line can be used, and ConfigError if the user does not exist.
    """
    table = read_table(file, quoted=True, encoding=encoding)
    column = table.column(label, LABELS, "--label")
    whose = table.column(user, USERS, "--user_column")
    if only and whose is None:
        raise ConfigError(f"{file}: no column of users for --user {only}; set it with --user_column")
    samples, targets, names, units = list[dict[str, str]](), list[Click](), list[str](), list[str]()
    rejected = list(table.rejected)
    for row in table.rows:
        values = {key: _text(value) for key, value in row.values.items()}
        owner = values.get(whose or "", "")
        if only and owner != only:
            continue
        truth = _TRUTHS.get(values.pop(column, "").strip().lower()) if column is not None else False
        if truth is None:
            rejected.append(table.reject(row, f"{row.values.get(column or '')!r:.40} is not a label; write 0 or 1"))
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
    """Return a value as text; JSON's ``null`` is a missing value, and a list several values."""
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def _nothing(file: Path, only: str | None, users: Sequence[object], rejected: Sequence[Rejected]) -> Exception:
    if only and only not in map(str, users):
        names = sorted({str(user) for user in users})
        other = f" use one of them, such as {names[0]}" if names else " the file has no row"
        return ConfigError(f"{file}: no user {only!r};{did_you_mean(only, names) or other}")
    first = f": {rejected[0].path}: {rejected[0].reason}" if rejected else ""
    return DataError(f"{file}: no row can be used{first or '; write one per line, below the column names'}")
