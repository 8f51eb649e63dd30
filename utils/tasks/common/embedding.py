"""Text embeddings by one model: pooling of its outputs to one vector per text, and batching of its calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError, ModelError
from tecoinfer_modelzoo.progress import progress
from utils.outputs import GRAPH, refuse_labels
from utils.preprocess.text.lengths import planned
from utils.preprocess.text.tokens import Encoded, Given, Tokens
from utils.tasks import ExportSetting, Flag, Model, Options, str2bool
from utils.tasks.collating import collate
from utils.tasks.common.text_input import fed, lengths_of, longest

NOTE = "embedding"
"""Metadata key, optional: a JSON object with ``pooling``, ``normalize``, ``compare`` and the prefixes."""

MEAN, CLS, LAST = POOLINGS = ("mean", "cls", "last")
"""Pooling of a vector per token: the mean over all tokens except padding, the first token, or the last token."""

COSINE, DOT = COMPARES = ("cosine", "dot")
"""``cosine``: cosine of the angle. ``dot``: inner product."""

PREFIXES = ("prefix", "query_prefix", "passage_prefix")
"""Text put before a sentence, a query, and a passage."""

BGE_QUERY = "Represent this sentence for searching relevant passages: "
"""Query prefix of the English bge models."""

ENOUGH = 4096
"""Number of texts of a corpus that are tokenized at a time."""


@dataclass(frozen=True)
class Notes:
    """Settings of vectors and their comparison: the flag's, else the stored one, else the default."""

    pooling: str = MEAN  # one of POOLINGS
    normalize: bool = True  # whether vectors are scaled to length 1
    compare: str = COSINE  # one of COMPARES
    prefix: str = ""  # text put before a sentence
    query_prefix: str = ""  # before a query
    passage_prefix: str = ""  # before a passage

    @classmethod
    def of(cls, model: Model, options: Options) -> Notes:
        """Read the settings. Raises ModelError if a stored value is invalid."""
        stored = model.notes(NOTE)
        usual, found = cls(), dict[str, Any]()
        for key, known in (("pooling", POOLINGS), ("compare", COMPARES)):
            found[key] = stored.get(key, getattr(usual, key))
            if found[key] not in known:
                raise model.unusable(NOTE, f"{key} {found[key]!r} must be one of {', '.join(known)}")
        found["normalize"] = stored.get("normalize", True)
        if not isinstance(found["normalize"], bool):
            raise model.unusable(NOTE, f"normalize {found['normalize']!r} must be true or false")
        for key in PREFIXES:
            found[key] = stored.get(key, "")
            if not isinstance(found[key], str):
                raise model.unusable(NOTE, f"{key} {found[key]!r} must be text")
        said = {key: value for key in found if (value := getattr(options, key, None)) is not None}
        return cls(**found | said)


def in_use(key: str, name: str, model: Model, options: Options) -> Any:
    """Return the value of a setting; ``name``: the model, if the task has several."""
    return getattr(Notes.of(model.named.get(name, model), options), key)


def embedding_settings(name: str, prefixes: Mapping[str, tuple[str, ...]]) -> tuple[ExportSetting, ...]:
    """Return the export settings of an embedding for ``teco fix``; ``prefixes``: values to try by flag."""
    of_all: dict[str, tuple[Any, ...]] = {"pooling": POOLINGS, "normalize": (True, False), "compare": COMPARES}
    return tuple(
        ExportSetting(f"--{key}", values, "prepare", partial(in_use, key, name))
        for key, values in (of_all | dict(prefixes)).items()
    )


def vectors(outputs: Any, lengths: Sequence[int], model: Model, options: Options, notes: Notes) -> Array:
    """Return one vector per row, N x D float32.

    Reads the output called ``sentence_embedding``, ``text_embeds``, ``image_embeds``, ``embeddings``, ``embedding`` or
    ``output``, else the first; with ``--pooling`` the first output with a vector per token.

    Args:
        outputs: of a call. lengths: tokens of each row, without the padding at the end.
        model, options, notes: of the model.

    Raises:
        ModelError: The output is not N x D or N x T x D. InputError: ``--pooling`` without a vector per token.
    """
    arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    names = [spec.name for spec in model.outputs]
    known = ("sentence_embedding", "text_embeds", "image_embeds", "embeddings", "embedding", "output")
    place = next((names.index(name) for name in known if name in names), 0)
    if getattr(options, "pooling", None) is not None:
        per_token = [place for place, array in enumerate(arrays) if array.ndim == 3]
        if not per_token:
            raise InputError(f"--pooling {options.pooling}: {model.ckpt} outputs one vector per text; leave it out")
        place = per_token[0]
    place = place if place < len(arrays) else 0
    found, form = arrays[place], model.form(None, place)
    if form.source == GRAPH:
        refuse_labels(form, model.ckpt, "an embedding is needed", "")
    if found.ndim not in (2, 3) or len(found) != len(lengths) or found.dtype.kind != "f":
        raise ModelError(
            f"{model.ckpt}: its output is {list(found.shape)} {found.dtype} for {len(lengths)} texts; expected "
            "N x D or N x T x D floats"
        )
    found = found.astype(np.float32)
    if found.ndim == 3:
        found = pooled(found, lengths, notes.pooling)
    return scaled(found) if notes.normalize or notes.compare == COSINE else found


def pooled(states: Array, lengths: Sequence[int], way: str) -> Array:
    """Return N x D pooled vectors of N x T x D token vectors, of which the first ``lengths[i]`` of row i count."""
    counts = np.asarray(lengths)
    if way == CLS:
        return np.ascontiguousarray(states[:, 0])
    if way == LAST:
        return np.ascontiguousarray(states[np.arange(len(states)), counts - 1])
    kept = np.arange(states.shape[1]) < counts[:, None]
    total: Array = np.where(kept[:, :, None], states, np.float32(0)).sum(axis=1)
    mean: Array = total / np.maximum(counts, 1)[:, None].astype(np.float32)
    return mean


def scaled(rows: Array) -> Array:
    """Return vectors scaled to length 1; a vector of length 0 becomes NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        length = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
        found: Array = (rows / length).astype(np.float32)
    return found


class Rows(ABC):
    """Batched calls of a text model; a subclass reads the outputs.

    Every call has the same number of rows (the last row is repeated) and texts of one planned length. So the result of
    a text does not depend on the other texts, their order, the process, or whether the run was resumed.
    """

    def __init__(self, engine: Any, options: Options) -> None:
        self.engine, self.model, self.options = engine, Model.of(engine), options
        self.tokens = Tokens.of(self.model, options)
        self.longest = longest(self.model, options, self.tokens)
        self._count = self.model.batch or options.batch_size
        self._lengths = lengths_of(self.model)

    @abstractmethod
    def read(self, outputs: Any, lengths: Sequence[int]) -> Array:
        """Return a row for each text of a call; ``lengths``: tokens of each text."""

    def encode(self, texts: Sequence[Given]) -> list[Encoded]:
        """Return the tokens of texts, truncated to the model's length."""
        return self.tokens.encode(texts, self.longest)

    def of(self, encoded: Sequence[Encoded], title: str | None = None) -> Array:
        """Return a row for each text; ``title``: of the progress bar (``None``: without a bar)."""
        if not encoded:
            return np.empty((0, 0), np.float32)
        groups: dict[int, list[int]] = {}
        for place, one in enumerate(encoded):
            groups.setdefault(planned(len(one.ids), self._lengths), []).append(place)
        step = self._count
        parts = [places[start : start + step] for places in groups.values() for start in range(0, len(places), step)]
        found: list[Array] = list(self._each(partial(self._called, encoded), parts, title))
        rows = np.empty((len(encoded), *found[0].shape[1:]), found[0].dtype)
        for places, part in zip(parts, found, strict=True):
            rows[places] = part
        return rows

    def _each(
        self, call: Callable[[list[int]], Array], parts: Sequence[list[int]], title: str | None
    ) -> Iterable[Array]:
        """Return the results of all calls; calls of a corpus run in parallel on the engine's streams."""
        if title is None:
            return map(call, parts)
        streams = getattr(self.engine, "streams", 1)
        if streams < 2 or len(parts) < 2:
            return map(call, progress(parts, "call", title))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(streams, thread_name_prefix="corpus") as pool:
            return list(progress(pool.map(call, parts), "call", title, len(parts)))

    def _called(self, encoded: Sequence[Encoded], part: list[int]) -> Array:
        texts = [encoded[place] for place in part]
        filled = [*texts, *texts[-1:] * (self._count - len(texts))]
        outputs = self.engine(collate([fed(filled, self.model)], self.model))
        return self.read(outputs, [len(one.ids) for one in filled])[: len(texts)]


class Embedder(Rows):
    """Embedding of texts, N x D float32."""

    def __init__(self, engine: Any, options: Options) -> None:
        super().__init__(engine, options)
        self.notes = Notes.of(self.model, options)

    def read(self, outputs: Any, lengths: Sequence[int]) -> Array:
        """Return a vector for each text."""
        return vectors(outputs, lengths, self.model, self.options, self.notes)


def check_embedding(options: Options) -> None:
    """Raise ConfigError if ``--compare cosine`` is combined with ``--normalize false``."""
    if options.compare == COSINE and options.normalize is False:
        raise ConfigError("--compare cosine needs vectors of length 1; use --compare dot with --normalize false")


EMBEDDING_FLAGS = (
    Flag("--pooling", "of a model with a vector per token (default: as stored, or mean)", None, choices=POOLINGS),
    Flag("--normalize", "scale vectors to length 1 (default: as stored, or true)", None, str2bool, nargs="?"),
    Flag("--compare", "how vectors are compared (default: as stored, or cosine)", None, choices=COMPARES),
)
