"""The items that may be recommended: as columns of a model's scores, or as vectors that a model of items makes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine import Array, Engine, ModelError
from utils.datasets.tabular.histories import Catalogue
from utils.preprocess.features import Features
from utils.tasks.base import Options
from utils.tasks.model import Model

QUERY, ITEM = "query", "item"
"""Names of the two models: of a history, and of an item."""

ID = "id"
"""The field of an item's features that holds its name."""

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
        wanted = f"be a score for each of {self._total} items; with a model of items, pass {QUERY}=FILE {ITEM}=FILE"
        if self._vectors is not None:
            wanted = f"be vectors of {self._total} as the items' are; with scores, leave {ITEM}=FILE out"
        raise ModelError(
            f"{self._model.ckpt}: its output is {list(rows.shape)} {rows.dtype} for {count} histories; it must {wanted}"
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
    """Return the items of a catalogue that can be recommended, and what there is to say of the others.

    Without a model of items they are those that the model of histories has scores for.

    Args:
        engines: by name. catalogue: of the data set. data: its fingerprint. options: the flags.

    Raises:
        ModelError: the model knows none of them, or the model of items does not fit the data set.
    """
    query = Model.of(engines[QUERY])
    if ITEM in engines:
        return _of_vectors(engines[ITEM], query, catalogue, data, options)
    numbers = known_items(query)
    kept = [place for place, name in enumerate(catalogue.names) if name in numbers]
    if not kept:
        raise ModelError(
            f"{query.ckpt}: it knows none of the {len(catalogue.names)} items of the data set; they are not those it "
            "was trained on"
        )
    names = [catalogue.names[place] for place in kept]
    strange = len(catalogue.names) - len(kept)
    said = [f"{strange} of {len(catalogue.names)} items are unknown to the model: it cannot recommend them"]
    columns = np.array([numbers[name] - 1 for name in names], np.int64)
    return Index(names, catalogue.counts[kept], columns, None, max(numbers.values()), query), said * bool(strange)


def _of_vectors(
    engine: Engine, query: Model, catalogue: Catalogue, data: str, options: Options
) -> tuple[Index, list[str]]:
    """Return all items of a catalogue with the vectors that the model of items makes of what is known of them."""
    model = Model.of(engine)
    features = Features.of(model)
    absent = features.missing([*catalogue.fields, ID])
    if absent:
        raise ModelError(
            f"{model.ckpt}: it wants {', '.join(absent)} of an item, and the data set has {ID}, "
            f"{', '.join(catalogue.fields) or 'nothing else'}; put a file of items beside the ratings"
        )
    rows = [
        dict(zip([ID, *catalogue.fields], values, strict=True))
        for values in zip(catalogue.names, *catalogue.fields.values(), strict=True)
    ]
    encoded = features.encoded(rows)
    arrays = [encoded[spec.name].astype(spec.dtype, copy=False) for spec in model.inputs]
    vectors = _vectors(engine, model, arrays, data, options)
    said = []
    strange = sum(ID in unknown for unknown in features.unknown(encoded))
    if strange:
        said.append(f"{strange} of {len(rows)} items are new to the model: it knows them by their features alone")
    bad = int(np.isnan(vectors).any(axis=1).sum())
    if bad:
        said.append(f"{bad} of {len(rows)} items have NaN in their vectors, so no ranking can be trusted")
    return Index(catalogue.names, catalogue.counts, np.arange(len(rows)), vectors, vectors.shape[1], query), said


def _vectors(engine: Engine, model: Model, arrays: Sequence[Array], data: str, options: Options) -> Array:
    """Return a vector for each item, M x D float32; every call has the same number of rows."""
    from tecoinfer_modelzoo.progress import progress
    from utils.tasks.common.kept_vectors import kept_vectors

    count = model.batch or options.batch_size

    def make(start: int, stop: int) -> tuple[Array, dict[str, int]]:
        parts = []
        for first in progress(range(start, stop, count), "call", f"items {start + 1} to {stop}"):
            some = np.minimum(np.arange(first, first + count), stop - 1)
            output = engine([array[some] for array in arrays])
            found = np.asarray(output[0] if isinstance(output, (list, tuple)) else output)
            if found.ndim != 2 or len(found) != count or found.dtype.kind != "f":
                raise ModelError(
                    f"{model.ckpt}: its output is {list(found.shape)} {found.dtype} for {count} items; it must be N x D"
                )
            parts.append(found[: stop - first])
        return np.concatenate(parts), {}

    kept = None if options.resume is None else options.resume / "items"
    return kept_vectors(kept, engine, (data, count), len(arrays[0]), STEP, make, options)[0]
