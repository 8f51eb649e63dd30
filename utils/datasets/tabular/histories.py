"""Users' actions in order of time as samples: a history per user, with the items of a later part as targets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.tabular.ratings import Ratings
from utils.datasets.tabular.splits import PARTS, TRAIN, split

CATALOGUE, HOW, UNASKED = "catalogue", "how", "unasked"
"""Keys of notes: the :class:`Catalogue`, the kind of split, and the numbers of skipped users by reason."""

TYPED = "history"
"""Name of the user for a history from the command line."""


class History(NamedTuple):
    """A sample: a user, names of items from the oldest on, the user's fields, and names of the relevant items."""

    id: str
    items: list[str]
    fields: Mapping[str, str]
    targets: Sequence[str] = ()


class Catalogue(NamedTuple):
    """The items of a data set.

    Attributes:
        names: ids in the files. titles: display names. fields: other fields, a text per item.
        counts: int64, occurrences in the training part, or in the whole data set without a split.
    """

    names: list[str]
    titles: list[str]
    fields: Mapping[str, Sequence[str]]
    counts: Array


def sequences(ratings: Ratings, kept: Array) -> list[Array]:
    """Return an array per user of the items in the rows ``kept`` (bool), in order of time, indices int64; may be empty.

    Rows with equal times are in file order.
    """
    times = np.nan_to_num(ratings.times, nan=0.0)  # without times, in file order
    order = np.lexsort((np.arange(len(times)), times, ratings.users))
    order = order[np.asarray(kept, bool)[order]]
    edges = np.searchsorted(ratings.users[order], np.arange(len(ratings.user_names) + 1))
    items = ratings.items[order].astype(np.int64)
    return [items[start:stop] for start, stop in itertools.pairwise(edges.tolist())]


def held_out(ratings: Ratings, how: str, part: str, seed: int = 0) -> ListDataset:
    """Return users with rows in the part ``valid`` or ``test`` of a split, as samples with their targets.

    The history is the earlier parts; relevant are the items in the part that are not in the history. Each target is a
    mapping from names of items to 1. ``how`` and ``seed`` are those of :func:`utils.datasets.tabular.splits.split`.
    Raises ConfigError if the split is impossible, and DataError if no user is left.
    """
    if part not in PARTS[1:]:
        raise ConfigError(f"part {part!r} must be {' or '.join(PARTS[1:])}")
    parts = split(ratings.users, ratings.times, how, seed, where=_where(ratings))
    number = PARTS.index(part)
    before, asked = sequences(ratings, parts < number), sequences(ratings, parts == number)
    samples, unasked = [], {"nothing before it": 0, "nothing new in it": 0}
    for user, (own, later) in enumerate(zip(before, asked, strict=True)):
        if not len(later):
            continue
        seen = set(own.tolist())
        new = [item for item in dict.fromkeys(later.tolist()) if item not in seen]
        if not len(own) or not new:
            unasked["nothing before it" if not len(own) else "nothing new in it"] += 1
            continue
        samples.append(_history(ratings, user, own, new))
    if not samples:
        skipped = ", ".join(f"{count} with {why}" for why, count in unasked.items() if count) or "none has both parts"
        raise DataError(
            f"{_where(ratings)}: no user has new items in the {part} part of the split {how} and items before it "
            f"({skipped}); choose another --split"
        )
    return _dataset(ratings, samples, parts == TRAIN, {HOW: how, UNASKED: unasked}, ratings.rejected)


def whole(ratings: Ratings, users: Sequence[str] | None) -> ListDataset:
    """Return users (``None``: all) with all their items, as samples without targets; unknown users are rejected.

    Raises DataError if none of them exists.
    """
    places = {name: place for place, name in enumerate(ratings.user_names)}
    wanted = list(dict.fromkeys(users if users is not None else ratings.user_names))
    strange = [Rejected(Path(f"user {one}"), f"is not in {_where(ratings)}") for one in wanted if one not in places]
    if len(strange) == len(wanted):
        known = ", ".join(ratings.user_names[:3])
        raise DataError(
            f"--users {' '.join(wanted[:5])}: {_where(ratings)} has none of these; its {len(places)} users are for "
            f"example {known}"
        )
    own = sequences(ratings, np.ones(len(ratings.users), bool))
    found = [place for one in wanted if (place := places.get(one)) is not None]
    samples = [_history(ratings, place, own[place]) for place in found]
    return _dataset(ratings, samples, np.ones(len(ratings.users), bool), {}, [*ratings.rejected, *strange])


def typed(ratings: Ratings, items: Sequence[str]) -> ListDataset:
    """Return one sample with the given history, the oldest item first; unknown items are rejected.

    Raises DataError if none of the items exists.
    """
    known = set(ratings.item_names)
    own = [one for one in items if one in known]
    strange = [Rejected(Path(f"item {one}"), f"is not in {_where(ratings)}") for one in items if one not in known]
    if not own:
        flag = f"--history {' '.join(items[:5])}" if any(items) else "--history is empty"
        raise DataError(
            f"{flag}; pass items of {_where(ratings)}, the oldest first, such as {' '.join(ratings.item_names[:3])}"
        )
    sample = History(TYPED, own, {})
    return _dataset(ratings, [sample], np.ones(len(ratings.users), bool), {}, [*ratings.rejected, *strange])


def _history(ratings: Ratings, user: int, own: Array, new: Sequence[int] = ()) -> History:
    names = ratings.item_names
    fields = {key: values[user] for key, values in ratings.user_fields.items()}
    return History(ratings.user_names[user], [names[i] for i in own.tolist()], fields, tuple(names[i] for i in new))


def _dataset(
    ratings: Ratings,
    samples: Sequence[History],
    counted: Array,
    notes: Mapping[str, object],
    rejected: Sequence[Rejected],
) -> ListDataset:
    counts = np.bincount(ratings.items[counted], minlength=len(ratings.item_names))
    catalogue = Catalogue(ratings.item_names, ratings.titles, ratings.item_fields, counts)
    targets = [dict.fromkeys(sample.targets, 1) for sample in samples] if samples[0].targets else None
    return ListDataset(
        samples,
        targets,
        names=[f"user {sample.id}" if sample.id != TYPED else TYPED for sample in samples],
        files=ratings.files,
        rejected=rejected,
        notes={CATALOGUE: catalogue, **notes},
    )


def _where(ratings: Ratings) -> str:
    return str(ratings.files[0]) if ratings.files else "the data set"
