"""Autoregressive decoding: key/value caches of planned sizes with a mask, and the generation loop.

A card computes in fixed shapes, so a cache does not grow with each token. It has a planned size, a mask marks the
filled slots, and a full cache is copied into one of the next size. Tokens are fed in chunks of planned sizes as well: a
prompt in some chunks, every further token in a chunk of 1. Samples of a batch may have any lengths: each fills its own
slots from the first on, and the padding of a chunk is masked and not stored.

:func:`generate` is independent of the model: it takes a ``step``. :class:`Decoder` is a step of an engine; it finds its
inputs by name. Further inputs, such as the states of an encoder, are passed as constants.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from engine import Array, DataError, ModelError, TensorSpec, Timeline
from utils.tasks import Model
from utils.tasks.common.outputs import as_logarithms

FIRST, NEXT = "first token", "next tokens"
"""Stages in a timeline: the step that outputs the first tokens, and each further step; samples are tokens."""

SLOTS, CHUNKS = (64, 128, 256, 512, 1024), (1, 16, 64)
"""Default planned sizes of a cache, and of the tokens fed in one call."""


class Plans(NamedTuple):
    """Planned sizes, rising: ``slots`` of a cache, ``chunks`` of tokens per call."""

    slots: tuple[int, ...] = SLOTS
    chunks: tuple[int, ...] = CHUNKS

    def room(self, tokens: int) -> int:
        """Return the smallest cache size that holds ``tokens``. Raises DataError if the largest is too small."""
        place = bisect_left(self.slots, tokens)
        if place == len(self.slots):
            raise DataError(
                f"{tokens} tokens exceed the largest planned cache, {self.slots[-1]} slots; use a shorter text, or "
                "plan a larger cache with --lengths"
            )
        return self.slots[place]

    def chunk(self, tokens: int) -> int:
        """Return the smallest chunk that holds ``tokens``, or else the largest chunk."""
        return self.chunks[min(bisect_left(self.chunks, tokens), len(self.chunks) - 1)]


class Slot(NamedTuple):
    """Position of a cache in a model: indices of input and output, and the axes of samples and slots."""

    input: int
    output: int
    batch: int
    axis: int


class Cache:
    """The keys and values of a batch.

    Attributes:
        arrays: one per cache of the model, as its inputs take them.
        lengths: N int64, number of filled slots of each sample, which are the first ones.
        constants: further inputs by name, such as an encoder's states; samples along axis 0.
    """

    def __init__(self, arrays: list[Array], lengths: Array, forms: Sequence[Slot], constants: Mapping[str, Array]):
        self.arrays, self.lengths, self.constants, self._forms = arrays, lengths, dict(constants), forms

    @property
    def slots(self) -> int:
        """Number of slots per sample; 0 for a decoder without caches."""
        return self.arrays[0].shape[self._forms[0].axis] if self.arrays else 0

    def mask(self, dtype: Any) -> Array:
        """Return the mask, N x slots: 1 for filled slots, else 0."""
        filled: Array = (np.arange(self.slots) < self.lengths[:, None]).astype(dtype)
        return filled

    def resize(self, slots: int) -> None:
        """Copy the content into arrays with more slots."""
        for i, (array, form) in enumerate(zip(self.arrays, self._forms, strict=True)):
            shape = list(array.shape)
            shape[form.axis] = slots
            self.arrays[i] = np.zeros(shape, array.dtype)
            _by_slot(self.arrays[i], form)[:, : array.shape[form.axis]] = _by_slot(array, form)

    def write(self, new: Sequence[Array], counts: Array) -> None:
        """Write the first ``counts`` new keys and values of each sample into its next slots."""
        rows = np.repeat(np.arange(len(counts)), counts)
        taken = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self.lengths[rows] + taken
        for array, found, form in zip(self.arrays, new, self._forms, strict=True):
            _by_slot(array, form)[rows, places] = _by_slot(found, form)[rows, taken]
        self.lengths = self.lengths + counts

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the samples at these places, in this order."""
        chosen = np.asarray(places, np.intp)
        self.arrays = [np.take(a, chosen, axis=f.batch) for a, f in zip(self.arrays, self._forms, strict=True)]
        self.constants = {name: value[chosen] for name, value in self.constants.items()}
        self.lengths = self.lengths[chosen]


def _by_slot(array: Array, form: Slot) -> Array:
    """Return a view with samples first and slots second."""
    return np.moveaxis(array, (form.batch, form.axis), (0, 1))


# ---------------------------------------------------------------------------------------------------------- one decoder


class Fed(NamedTuple):
    """Logits of a chunk, N samples x T tokens x V, of the tokens ``first`` <= place < ``end`` of each sample.

    Places are counted from the first token of the call; for a finished sample ``first`` equals ``end``.
    """

    logits: Array
    first: Array
    end: Array


class Decoder:
    """An engine as a step of :func:`generate`.

    Inputs are matched by name: token ids (``ids`` or ``token``), positions (``position``), the mask (``mask``; N x P of
    slots only, or N x (P + T) with the new tokens), the number of filled slots (``length``), and caches (``past``).
    Outputs: the logits (``logits``, or the first output), and one per cache in the same order: the new keys and values
    alone, or appended to the old ones. Logarithms of probabilities are used as logits.

    Args:
        call: the engine, or another callable. model: its tensors.
        plans: sizes of the model's open dimensions.
        constants: further inputs by name; samples along axis 0.

    Raises:
        ModelError: An input is unknown, or the number of cache outputs is wrong.
    """

    def __init__(
        self,
        call: Callable[[list[Array]], Any],
        model: Model,
        plans: Plans = Plans(),  # noqa: B008 -- it cannot be changed
        constants: Mapping[str, Array] | None = None,
    ) -> None:
        self._call, self._model, self._constants = call, model, dict(constants or {})
        self.kinds = [_kind(spec, self._constants, model) for spec in model.inputs]
        caches = [i for i, kind in enumerate(self.kinds) if kind == "past"]
        self._logits = next((i for i, spec in enumerate(model.outputs) if "logits" in spec.name.lower()), 0)
        self._form = model.form(None, self._logits)
        behind = [i for i in range(len(model.outputs)) if i != self._logits]
        if not 0 < len(caches) <= len(behind) or "ids" not in self.kinds:
            raise ModelError(
                f"{model.ckpt}: has {len(caches)} cache inputs and {len(behind)} outputs besides the logits; inputs: "
                f"{_some([spec.name for spec in model.inputs])}; expected token ids, caches, and an output per "
                "cache; export it with a key/value cache (docs/reference/nlp.md)"
            )
        if not {"position", "length"} & set(self.kinds):
            raise ModelError(
                f"{model.ckpt}: has neither an input of positions nor of the length of the past, so it would take the "
                "size of the cache for that length; export it with position_ids (docs/reference/nlp.md)"
            )
        self.forms = [Slot(i, o, *cache_axes(model.inputs[i])) for i, o in zip(caches, behind, strict=False)]
        self.plans = self._planned(plans)

    def _planned(self, plans: Plans) -> Plans:
        """Return the model's fixed or planned sizes, else the requested ones."""
        ids = self.kinds.index("ids")
        chunks = self._model.sizes(ids, 1 - (self._model.inputs[ids].batch_axis or 0))
        slots = self._model.sizes(self.forms[0].input, self.forms[0].axis)
        return Plans(slots or tuple(sorted(set(plans.slots))), chunks or tuple(sorted(set(plans.chunks))))

    def empty(self, samples: int) -> Cache:
        """Return an empty cache for a number of samples."""
        arrays = []
        for form in self.forms:
            spec = self._model.inputs[form.input]
            shape = [size or 0 for size in spec.shape]
            shape[form.batch], shape[form.axis] = samples, self.plans.slots[0]
            arrays.append(np.zeros(shape, spec.dtype))
        return Cache(arrays, np.zeros(samples, np.int64), self.forms, self._constants)

    def __call__(self, ids: Sequence[Array], cache: Cache | None) -> tuple[Array, Cache]:
        """Feed tokens of each sample; return the logits after the last token of each, N x V float32, and the cache.

        Args:
            ids: one int64 array per sample, at least one token each. cache: ``None`` for the start of a text.

        Raises:
            DataError: The tokens exceed the largest planned cache.
        """
        cache = self.empty(len(ids)) if cache is None else cache
        last: Array | None = None
        for fed in self.chunks(ids, cache):
            if last is None:
                last = np.zeros((len(ids), fed.logits.shape[-1]), np.float32)
            for row, (first, end) in enumerate(zip(fed.first.tolist(), fed.end.tolist(), strict=True)):
                if first < end:
                    last[row] = fed.logits[row, end - first - 1]
        if last is None:
            raise DataError("the prompt is empty; give at least one token")
        return last, cache

    def chunks(self, ids: Sequence[Array], cache: Cache) -> Iterator[Fed]:
        """Feed tokens of each sample chunk by chunk, and yield the logits of each chunk; the cache is updated."""
        counts = np.array([len(one) for one in ids], np.int64)
        done = np.zeros_like(counts)
        while (done < counts).any():
            size = self.plans.chunk(int((counts - done).max()))
            end = np.minimum(counts, done + size)
            tokens = np.zeros((len(ids), size), np.int64)
            for row, one in enumerate(ids):
                tokens[row, : end[row] - done[row]] = one[done[row] : end[row]]
            logits = self._fed(tokens, end - done, cache)
            yield Fed(logits, done, end)
            done = end

    def _fed(self, tokens: Array, counts: Array, cache: Cache) -> Array:
        """Call the model once."""
        wanted = int((cache.lengths + counts).max())
        if cache.arrays and wanted > cache.slots:
            cache.resize(self.plans.room(wanted))
        found = self._call([self._array(i, tokens, counts, cache) for i in range(len(self.kinds))])
        outputs = [found] if isinstance(found, np.ndarray) else list(found)
        logits: Array = outputs[self._logits]
        if logits.ndim != 3:
            raise ModelError(
                f"{self._model.ckpt}: its logits have shape {list(logits.shape)}; expected N x T x vocabulary"
            )
        logits = as_logarithms(logits, self._form, self._model)
        size = tokens.shape[1]
        cache.write([_newest(outputs[form.output], form, size) for form in self.forms], counts)
        return logits

    def _array(self, place: int, tokens: Array, counts: Array, cache: Cache) -> Array:
        """Return one input of a call."""
        spec, kind = self._model.inputs[place], self.kinds[place]
        if kind == "past":
            return cache.arrays[[form.input for form in self.forms].index(place)]
        if kind == "constant":
            return cache.constants[spec.name].astype(spec.dtype, copy=False)
        if kind == "ids":
            return tokens.astype(spec.dtype, copy=False)
        if kind == "position":  # padding repeats the last token's position, to stay within the model's positions
            ahead = np.minimum(np.arange(tokens.shape[1]), np.maximum(counts - 1, 0)[:, None])
            places: Array = (cache.lengths[:, None] + ahead).astype(spec.dtype)
            return places
        if kind == "length":
            return cache.lengths.astype(spec.dtype)
        filled = cache.mask(spec.dtype)
        if spec.shape[-1] == cache.slots or self._is_of_slots(spec):
            return filled
        new = (np.arange(tokens.shape[1]) < np.maximum(counts, 1)[:, None]).astype(spec.dtype)
        return np.concatenate([filled, new], axis=1)

    def _is_of_slots(self, mask: TensorSpec) -> bool:
        """Return whether the symbol of the mask's length is that of the caches' slots."""
        first = self.forms[0]
        symbols = self._model.inputs[first.input].symbols
        return bool(symbols and mask.symbols) and mask.symbols[-1] == symbols[first.axis]


_NAMES = (("past", "past"), ("mask", "mask"), ("position", "position"), ("length", "length"), ("ids", "ids"))


def _kind(spec: TensorSpec, constants: Mapping[str, Array], model: Model) -> str:
    """Return the kind of an input by its name."""
    name = spec.name.lower()
    if spec.name in constants:
        return "constant"
    if "past" in name and len(spec.shape) < 3:  # past_length, past_mask
        name = name.replace("past", "")
        name = name if any(word in name for word, _ in _NAMES) else "length"
    found = next((kind for word, kind in _NAMES if word in name), "ids" if "token" in name else "")
    if not found:
        raise ModelError(
            f"{model.ckpt}: unknown input {spec.name!r}; expected names with ids, position, mask, length or past"
        )
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def cache_axes(spec: TensorSpec) -> tuple[int, int]:
    """Return the axes of samples and of slots: the only open one besides the samples', or the second to last."""
    batch = spec.batch_axis or 0
    free = [axis for axis, size in enumerate(spec.shape) if size is None and axis != batch]
    return batch, free[0] if len(free) == 1 else len(spec.shape) - 2


def _newest(array: Array, form: Slot, count: int) -> Array:
    """Return the last ``count`` slots of a cache output: those of the new tokens."""
    size = array.shape[form.axis]
    if size == count:
        return array
    return np.moveaxis(np.moveaxis(array, form.axis, 0)[size - count :], 0, form.axis)


# ------------------------------------------------------------------------------------------------------------- the loop


class Rows(Protocol):
    """State of a step between calls, such as :class:`Cache`."""

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the samples at these places, in this order."""


Step: TypeAlias = Callable[[Sequence[Array], Any], "tuple[Array, Any]"]
"""``(ids, cache) -> (logits, cache)``: takes the next tokens of each sample (int64 arrays, at least one token) and the
previous cache (``None`` at first); returns the logits after the last token of each, N x V, and a cache with
:meth:`Rows.keep`."""

Choose: TypeAlias = Callable[[Array, Sequence[int], Sequence[Sequence[int]]], Array]
"""``(logits, places, texts) -> tokens``: takes N x V float32 logits, and for each row the place of its prompt and its
tokens so far, prompt included; returns N int64. See :mod:`utils.postprocess.text.sampling`."""


class Limits(NamedTuple):
    """Stopping conditions."""

    tokens: int | Sequence[int]  # maximum number of new tokens, for all prompts or per prompt
    stop: frozenset[int] = frozenset()  # tokens that end a text, and are not part of it
    ended: Callable[[Sequence[int]], bool] | None = None  # whether new tokens, part of the text, end it: a stop string


@dataclass
class Continuation:
    """Generated continuation of a prompt."""

    ids: list[int] = field(default_factory=list)  # the new tokens, without the stop token
    score: float = 0.0  # sum of their probabilities' natural logarithms, stop token included; NaN if the logits are
    counted: int = 0  # number of tokens in the sum
    why: str = "limit"  # reason of the end: stop (a token), ended (a string), limit, or nan


def generate(
    step: Step, prompts: Sequence[Array], limits: Limits, choose: Choose, timeline: Timeline | None = None
) -> list[Continuation]:
    """Continue a batch of prompts of any lengths token by token; return one continuation per prompt.

    Args:
        step: feeds tokens. prompts: int64, at least one token each. limits: stopping conditions.
        choose: chooses the next tokens. timeline: gets a span :data:`FIRST`, and :data:`NEXT` per further step.
    """
    made = [Continuation() for _ in prompts]
    texts = [list(map(int, prompt)) for prompt in prompts]
    most = [limits.tokens] * len(texts) if isinstance(limits.tokens, int) else list(limits.tokens)
    places = [place for place in range(len(texts)) if most[place] > 0]
    feed: list[Array] = [np.asarray(prompts[place], np.int64) for place in places]
    cache: Any = None
    stage = FIRST
    while places:
        start = time.perf_counter()
        logits, cache = step(feed, cache)
        open_rows = _taken(logits, places, texts, made, limits, choose, most)
        if timeline is not None:
            timeline.add(stage, start, time.perf_counter(), len(places), "host")
        if len(open_rows) < len(places) and open_rows:
            cache.keep(open_rows)
        places, stage = [places[row] for row in open_rows], NEXT
        feed = [np.array(texts[place][-1:], np.int64) for place in places]
    return made


def _taken(
    logits: Array,
    places: Sequence[int],
    texts: Sequence[list[int]],
    made: Sequence[Continuation],
    limits: Limits,
    choose: Choose,
    most: Sequence[int],
) -> list[int]:
    """Choose and append a token for each row; return the rows of unfinished texts."""
    logits = np.asarray(logits, np.float32)
    broken = np.isnan(logits).any(axis=1)
    rows = [row for row in range(len(places)) if not broken[row]]
    for row in np.flatnonzero(broken).tolist():
        made[places[row]].score, made[places[row]].why = float("nan"), "nan"
    if not rows:
        return []
    used = logits if len(rows) == len(places) else logits[rows]
    tokens = np.asarray(choose(used, [places[row] for row in rows], [texts[places[row]] for row in rows]), np.int64)
    scores = log_probabilities(used, tokens)
    left = []
    for row, token, score in zip(rows, tokens.tolist(), scores.tolist(), strict=True):
        one, text = made[places[row]], texts[places[row]]
        one.score, one.counted = one.score + score, one.counted + 1
        if token in limits.stop:
            one.why = "stop"
            continue
        one.ids.append(token)
        text.append(token)
        if limits.ended is not None and limits.ended(one.ids):
            one.why = "ended"
        elif len(one.ids) < most[places[row]]:
            left.append(row)
    return left


def figures_of(timeline: Timeline) -> dict[str, float]:
    """Return tokens/s, and the time to the first token, median and 99th percentile, in seconds.

    ``decode_tokens_per_s`` covers the tokens after the first. Times are host times, also with a simulated card.
    """
    found = {}
    if timeline.seconds(NEXT):
        found["decode_tokens_per_s"] = timeline.samples(NEXT) / timeline.seconds(NEXT)
    spans = [(one.end - one.start, one.samples) for one in list(timeline.spans) if one.stage == FIRST]
    if spans:
        waits = np.repeat([seconds for seconds, _ in spans], [count for _, count in spans])
        found["first_token_s_median"] = float(np.median(waits))
        found["first_token_s_p99"] = float(np.quantile(waits, 0.99))
    return found


def log_probabilities(logits: Array, tokens: Array) -> Array:
    """Return the natural logarithms of the probabilities of tokens, N float64, from N x V logits."""
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an infinite logit becomes NaN, which is reported
        rest = np.log(np.exp(logits - top).sum(axis=1, dtype=np.float64))
        chosen = np.take_along_axis(logits, tokens[:, None], axis=1)[:, 0].astype(np.float64)
        found: Array = chosen - top[:, 0] - rest
    return found
