"""Index of items: columns of a model's scores, or vectors that an item model computes once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine import Array, Engine, ModelError
from utils.datasets.tabular.histories import Catalogue
from utils.preprocess.features import Features
from utils.tasks import Model, Options

QUERY, ITEM = "query", "item"
"""Names of the two models."""

ID = "id"
"""Field of an item's features with its name."""

STEP = 4096
"""Number of items per part of the vector cache."""

BLOCK = 1 << 15
"""Number of vectors per multiplication."""


def known_items(model: Model) -> dict[str, int]:
    """Return the number of each item by its name, from 1; 0 is padding.
    Raises ModelError if the export stored no names of items."""
    names = model.stored.vocabulary
    if names is None:
        raise ModelError(f"{model.ckpt}: has no stored item names; export it with vocabulary=['', ITEM 1, ITEM 2, ...]")
    found = _NUMBERS.get(id(names))
    if found is None or found[0] is not names:
        found = names, {name: number for number, name in enumerate(names) if number}
        _NUMBERS.clear()
        _NUMBERS[id(names)] = found
    return found[1]


_NUMBERS: dict[int, tuple[Sequence[str], dict[str, int]]] = {}
"""Cache of the last vocabulary and its numbers."""


class Index:
    """Items that may be recommended, and their scoring.

    Attributes:
        names: of M items. places: place of each name. counts: float32 M, occurrences in the training part.
        sound: whether all vectors are free of NaN.

    Args:
        columns: int64 M, column of each item in a model's scores. vectors: M x D float32; ``None``: the model outputs
            scores. total: number of columns, or D. model: for errors.
    """

    def __init__(
        self, names: Sequence[str], counts: Array, columns: Array, vectors: Array | None, total: int, model: Model
    ) -> None:
        self.names, self.counts = list(names), counts.astype(np.float32)
        self.places = {name: place for place, name in enumerate(names)}
        self._columns, self._vectors, self._total, self._model = columns, vectors, total, model
        self.sound = vectors is None or not np.isnan(vectors).any()

    def checked(self, rows: Array, count: int) -> Array:
        """Return the query model's output, N x scores or N x D. Raises ModelError if it has another shape."""
        if rows.shape == (count, self._total) and rows.dtype.kind == "f":
            return rows
        wanted = f"a score for each of {self._total} items; with an item model, pass {QUERY}=FILE {ITEM}=FILE"
        if self._vectors is not None:
            wanted = f"vectors of {self._total} like the items'; with scores, leave {ITEM}=FILE out"
        raise ModelError(
            f"{self._model.ckpt}: its output is {list(rows.shape)} {rows.dtype} for {count} users; expected {wanted}"
        )

    def scores(self, row: Array, places: Array | None = None) -> Array:
        """Return the scores of all items, or of those at ``places``, float32."""
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
    """Return the index of a catalogue's items, and lines about items that cannot be recommended.

    Without an item model these are the items that the query model has scores for.

    Args:
        engines: by name. catalogue: of the data set. data: its fingerprint. options: the flags.

    Raises:
        ModelError: The model lacks all items, or the item model does not fit the data set.
    """
    query = Model.of(engines[QUERY])
    if ITEM in engines:
        return _of_vectors(engines[ITEM], query, catalogue, data, options)
    numbers = known_items(query)
    kept = [place for place, name in enumerate(catalogue.names) if name in numbers]
    if not kept:
        raise ModelError(
            f"{query.ckpt}: lacks all {len(catalogue.names)} items of the data set; use the data set of its training"
        )
    names = [catalogue.names[place] for place in kept]
    strange = len(catalogue.names) - len(kept)
    said = [f"{strange} of {len(catalogue.names)} items are not in the model and cannot be recommended"]
    columns = np.array([numbers[name] - 1 for name in names], np.int64)
    return Index(names, catalogue.counts[kept], columns, None, max(numbers.values()), query), said * bool(strange)


def _of_vectors(
    engine: Engine, query: Model, catalogue: Catalogue, data: str, options: Options
) -> tuple[Index, list[str]]:
    """Return the index of all items of a catalogue, with vectors that the item model computes from their features."""
    model = Model.of(engine)
    features = Features.of(model)
    absent = features.missing([*catalogue.fields, ID])
    if absent:
        raise ModelError(
            f"{model.ckpt}: needs the item features {', '.join(absent)}, and the data set has {ID}, "
            f"{', '.join(catalogue.fields) or 'nothing else'}; put a file of items next to the ratings"
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
        said.append(f"{strange} of {len(rows)} items are not in the training data: only their features are used")
    bad = int(np.isnan(vectors).any(axis=1).sum())
    if bad:
        said.append(f"{bad} of {len(rows)} items have NaN in their vectors, so all rankings are unreliable")
    return Index(catalogue.names, catalogue.counts, np.arange(len(rows)), vectors, vectors.shape[1], query), said


def _vectors(engine: Engine, model: Model, arrays: Sequence[Array], data: str, options: Options) -> Array:
    """Return the vector of each item, M x D float32; every call has the same number of rows."""
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
                    f"{model.ckpt}: its output is {list(found.shape)} {found.dtype} for {count} items; expected N x D"
                )
            parts.append(found[: stop - first])
        return np.concatenate(parts), {}

    kept = None if options.resume is None else options.resume / "items"
    return kept_vectors(kept, engine, (data, count), len(arrays[0]), STEP, make, options)[0]
