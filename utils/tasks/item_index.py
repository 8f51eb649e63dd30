"""The items that may be recommended: as columns of a model's scores, or as vectors that a model of items makes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, Engine, ModelError
from utils.datasets.histories import Catalogue
from utils.tasks.base import Options
from utils.tasks.model import Model

QUERY, ITEM = "query", "item"
"""Names of the two models: of a history, and of an item."""

STEP = 4096
"""Items whose vectors are made, and kept, together."""

BLOCK = 1 << 15
"""Vectors that are multiplied at a time."""


def known_items(model: Model) -> dict[str, int]:
    """Return the number of each item by its name, from 1 on; 0 is no item.

    Raises:
        ModelError: the export stored no names of items.
    """
    names = model.stored.vocabulary
    if names is None:
        raise ModelError(
            f"{model.ckpt}: it stores no names of items; export it with vocabulary=['', ITEM 1, ITEM 2, ...]"
        )
    found = _NUMBERS.get(id(names))
    if found is None or found[0] is not names:
        found = names, {name: number for number, name in enumerate(names) if number}
        _NUMBERS.clear()
        _NUMBERS[id(names)] = found
    return found[1]


_NUMBERS: dict[int, tuple[Sequence[str], dict[str, int]]] = {}
"""The last vocabulary and its numbers: every batch asks for them."""


class Index:
    """What may be recommended, and how it is scored.

    Attributes:
        names: of M items. places: of each name. counts: float32 M, how often each comes in the training part.
        sound: whether no vector holds NaN.

    Args:
        columns: int64 M, which column of a model's scores each item is. vectors: M x D float32; ``None``: the model
            gives scores. total: columns or dimensions that a row must have. model: for errors.
    """

    def __init__(
        self, names: Sequence[str], counts: Array, columns: Array, vectors: Array | None, total: int, model: Model
    ) -> None:
        self.names, self.counts = list(names), counts.astype(np.float32)
        self.places = {name: place for place, name in enumerate(names)}
        self._columns, self._vectors, self._total, self._model = columns, vectors, total, model
        self.sound = vectors is None or not np.isnan(vectors).any()

    def checked(self, rows: Array, count: int) -> Array:
        """Return what the model of histories gave, N x scores or N x D.

        Raises:
            ModelError: it is neither.
        """
        if rows.shape == (count, self._total) and rows.dtype.kind == "f":
            return rows
        wanted = f"a score for each of {self._total} items" if self._vectors is None else f"vectors of {self._total}"
        raise ModelError(
            f"{self._model.ckpt}: its output is {list(rows.shape)} {rows.dtype} for {count} histories, and must be "
            f"{wanted}; with vectors, pass the model of items too: --ckpt {QUERY}=FILE {ITEM}=FILE"
        )

    def scores(self, row: Array, places: Array | None = None) -> Array:
        """Return the scores of items, float32: of all, or of those at some places."""
        if self._vectors is None:
            picked: Array = row[self._columns if places is None else self._columns[places]]
            return picked
        some = self._vectors if places is None else self._vectors[places]
        found = np.empty(len(some), np.float32)
        for start in range(0, len(some), BLOCK):
            with np.errstate(invalid="ignore"):
                found[start : start + BLOCK] = (some[start : start + BLOCK] * row).sum(axis=1)
        return found


def index_of(
    engines: Mapping[str, Engine], catalogue: Catalogue, data: str, options: Options
) -> tuple[Index, list[str]]:
    """Return the items of a catalogue that the model knows, and what there is to say of the others.

    Args:
        engines: by name. catalogue: of the data set. data: its fingerprint. options: the flags.

    Raises:
        ModelError: the model knows none, or two models number items differently.
    """
    query = Model.of(engines[QUERY])
    numbers = known_items(query)
    kept = [place for place, name in enumerate(catalogue.names) if name in numbers]
    if not kept:
        raise ModelError(
            f"{query.ckpt}: it knows none of the {len(catalogue.names)} items of the data set; they are not those it "
            "was trained on"
        )
    names = [catalogue.names[place] for place in kept]
    strange = len(catalogue.names) - len(kept)
    said = [f"{strange} of {len(catalogue.names)} items are unknown to the model: it cannot recommend them"] * bool(strange)
    ids = np.array([numbers[name] for name in names], np.int64)
    vectors = None
    total = max(numbers.values())
    if ITEM in engines:
        item = Model.of(engines[ITEM])
        own = known_items(item)
        lost = next((name for name in names if name not in own), None)
        if lost is not None:
            raise ModelError(f"{item.ckpt}: it does not know item {lost!r}, which {query.ckpt} knows; export both again")
        fields = {key: [values[place] for place in kept] for key, values in catalogue.fields.items()}
        vectors = _vectors(engines[ITEM], item, np.array([own[name] for name in names], np.int64), fields, data, options)
        total = vectors.shape[1]
    bad = 0 if vectors is None else int(np.isnan(vectors).any(axis=1).sum())
    if bad:
        said.append(f"{bad} of {len(names)} items have NaN in their vectors, so no ranking can be trusted")
    return Index(names, catalogue.counts[kept], ids - 1, vectors, total, query), said


def _vectors(
    engine: Engine, model: Model, ids: Array, fields: Mapping[str, Sequence[str]], data: str, options: Options
) -> Array:
    """Return a vector for each item, M x D float32; every call has the same number of rows."""
    from utils.progress import progress
    from utils.tasks.kept_vectors import kept_vectors

    count = model.batch or options.batch_size

    def make(start: int, stop: int) -> tuple[Array, dict[str, int]]:
        parts = []
        for first in progress(range(start, stop, count), "call", f"items {start + 1} to {stop}"):
            some = np.minimum(np.arange(first, first + count), stop - 1)
            output = engine(_inputs(model, ids, fields, some))
            found = np.asarray(output[0] if isinstance(output, (list, tuple)) else output)
            if found.ndim != 2 or len(found) != count or found.dtype.kind != "f":
                raise ModelError(
                    f"{model.ckpt}: its output is {list(found.shape)} {found.dtype} for {count} items; it must be N x D"
                )
            parts.append(found[: stop - first])
        return np.concatenate(parts), {}

    kept = None if options.resume is None else options.resume / "items"
    return kept_vectors(kept, engine, (data, count), len(ids), STEP, make)[0]


def _inputs(model: Model, ids: Array, fields: Mapping[str, Sequence[str]], places: Array) -> list[Array]:
    """Return the inputs of the model of items for some of them."""
    arrays: dict[str, Any] = {ITEM: ids[places]}
    others = [spec.name for spec in model.inputs if spec.name != ITEM]
    if others:
        from utils.preprocess.features import Features

        rows = [{key: values[place] for key, values in fields.items()} for place in places.tolist()]
        arrays |= Features.of(model).encoded(rows)
    lost = [name for name in others if name not in arrays]
    if lost or ITEM not in [spec.name for spec in model.inputs]:
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(spec.name for spec in model.inputs)}; they must be {ITEM!r} and "
            "the features that it stores"
        )
    return [arrays[spec.name].astype(spec.dtype, copy=False) for spec in model.inputs]
