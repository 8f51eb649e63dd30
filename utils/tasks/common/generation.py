"""Decoding token by token, for any decoder: caches of planned sizes with a mask, and the loop that feeds them.

A card computes in fixed shapes, so a cache does not grow with each token. It has the size of a plan, a mask says which
of its slots are filled, and where it is full its content moves into one of the next size. Tokens are fed in chunks of
planned sizes as well: a prompt in some, every further token in one of 1. Samples of a batch may have any lengths: each
fills its own slots from the first on, and what pads a chunk is neither kept nor seen.

:func:`generate` knows no model: it takes a ``step``. :class:`Decoder` makes one of an engine, and finds its inputs by
their names; what else the model takes, such as the states of an encoder, is handed in as constants.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from engine import Array, DataError, ModelError, TensorSpec, Timeline
from utils.tasks.common.outputs import as_logarithms
from utils.tasks.model import Model

FIRST, NEXT = "first token", "next tokens"
"""Stages in a timeline: until a batch has its first tokens, and each further step; samples are the tokens."""

SLOTS, CHUNKS = (64, 128, 256, 512, 1024), (1, 16, 64)
"""Planned sizes of a cache and of what is fed at once, where nothing else is said."""


class Plans(NamedTuple):
    """Planned sizes, rising: ``slots`` of a cache, ``chunks`` of tokens that are fed at once."""

    slots: tuple[int, ...] = SLOTS
    chunks: tuple[int, ...] = CHUNKS

    def room(self, tokens: int) -> int:
        """Return the smallest cache that holds so many tokens.

        Raises:
            DataError: none does.
        """
        place = bisect_left(self.slots, tokens)
        if place == len(self.slots):
            raise DataError(
                f"{tokens} tokens do not fit into the largest planned cache, {self.slots[-1]} slots; use a shorter "
                "text, or plan a larger cache with --lengths"
            )
        return self.slots[place]

    def chunk(self, tokens: int) -> int:
        """Return the smallest chunk that holds so many tokens, or the largest there is."""
        return self.chunks[min(bisect_left(self.chunks, tokens), len(self.chunks) - 1)]


class Slot(NamedTuple):
    """Where a cache is in a model: input and output by their places, and the axes of samples and slots."""

    input: int
    output: int
    batch: int
    axis: int


class Cache:
    """The keys and values of a batch.

    Attributes:
        arrays: one per cache of the model, as its inputs take them.
        lengths: int64, N: how many slots each sample has filled, which are the first ones.
        constants: further inputs by name, with the samples first: an encoder's states.
    """

    def __init__(self, arrays: list[Array], lengths: Array, forms: Sequence[Slot], constants: Mapping[str, Array]):
        self.arrays, self.lengths, self.constants, self._forms = arrays, lengths, dict(constants), forms

    @property
    def slots(self) -> int:
        """How many slots each sample has; 0 of a decoder without caches."""
        return self.arrays[0].shape[self._forms[0].axis] if self.arrays else 0

    def mask(self, dtype: Any) -> Array:
        """Return N x slots: 1 where a slot is filled, else 0."""
        filled: Array = (np.arange(self.slots) < self.lengths[:, None]).astype(dtype)
        return filled

    def resize(self, slots: int) -> None:
        """Move everything into arrays of so many slots, at least as many as there are."""
        for i, (array, form) in enumerate(zip(self.arrays, self._forms, strict=True)):
            shape = list(array.shape)
            shape[form.axis] = slots
            self.arrays[i] = np.zeros(shape, array.dtype)
            _by_slot(self.arrays[i], form)[:, : array.shape[form.axis]] = _by_slot(array, form)

    def write(self, new: Sequence[Array], counts: Array) -> None:
        """Fill the next ``counts`` slots of each sample with the first of the new keys and values."""
        rows = np.repeat(np.arange(len(counts)), counts)
        taken = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = self.lengths[rows] + taken
        for array, found, form in zip(self.arrays, new, self._forms, strict=True):
            _by_slot(array, form)[rows, places] = _by_slot(found, form)[rows, taken]
        self.lengths = self.lengths + counts

    def keep(self, places: Sequence[int]) -> None:
        """Go on with some of the samples, in this order."""
        chosen = np.asarray(places, np.intp)
        self.arrays = [np.take(a, chosen, axis=f.batch) for a, f in zip(self.arrays, self._forms, strict=True)]
        self.constants = {name: value[chosen] for name, value in self.constants.items()}
        self.lengths = self.lengths[chosen]


def _by_slot(array: Array, form: Slot) -> Array:
    """Return a view with samples first and slots second."""
    return np.moveaxis(array, (form.batch, form.axis), (0, 1))


# ---------------------------------------------------------------------------------------------------------- one decoder


class Fed(NamedTuple):
    """What a chunk gave: logits of N samples x T tokens x V, and of which tokens: ``first`` <= place < ``end``.

    Tokens are counted from the first one that the call was given; of a sample that is through both are equal.
    """

    logits: Array
    first: Array
    end: Array


class Decoder:
    """An engine as a step of :func:`generate`.

    Inputs are known by their names: tokens (``ids`` or ``tokens`` in it), their places (``position``), the mask
    (``mask``; N x P of slots only, or N x (P + T) of the new tokens too), how many slots are filled (``length``), and
    caches (``past``). Outputs: the logits (``logits``, or the first), and a cache for each, in the same order: the new
    keys and values alone, or behind the old ones. Of probabilities the logarithms stand for the logits.

    Args:
        call: the engine, or what stands for it. model: says its tensors.
        plans: sizes where the model's own dimensions are open.
        constants: further inputs by name, with the samples first.

    Raises:
        ModelError: an input is none of these, or there is not one output for each cache.
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
                f"{model.ckpt}: it has {len(caches)} caches and {len(behind)} outputs beside the logits; its inputs "
                f"are {_some([spec.name for spec in model.inputs])}; a decoder takes token ids and caches, and gives "
                "back each cache; export it with a key/value cache (docs/nlp.md)"
            )
        if not {"position", "length"} & set(self.kinds):
            raise ModelError(
                f"{model.ckpt}: it takes neither the places of tokens nor the length of the past, so the size of its "
                "cache stands for the latter; export it with position_ids (docs/nlp.md)"
            )
        self.forms = [_form(i, o, model) for i, o in zip(caches, behind, strict=False)]
        self.plans = self._planned(plans)

    def _planned(self, plans: Plans) -> Plans:
        """Return the sizes that the model has, where it is fixed or has plans, else those asked for."""
        ids = self._model.inputs[self.kinds.index("ids")]
        chunks = _sizes(ids, 1 - (ids.batch_axis or 0), self._model, plans.chunks)
        slots = plans.slots
        for form in self.forms[:1]:
            slots = _sizes(self._model.inputs[form.input], form.axis, self._model, plans.slots)
        return Plans(slots, chunks)

    def empty(self, samples: int) -> Cache:
        """Return the cache of so many samples before any token."""
        arrays = []
        for form in self.forms:
            spec = self._model.inputs[form.input]
            shape = [size or 0 for size in spec.shape]
            shape[form.batch], shape[form.axis] = samples, self.plans.slots[0]
            arrays.append(np.zeros(shape, spec.dtype))
        return Cache(arrays, np.zeros(samples, np.int64), self.forms, self._constants)

    def __call__(self, ids: Sequence[Array], cache: Cache | None) -> tuple[Array, Cache]:
        """Feed some tokens of each sample and return the logits behind the last of each, N x V float32, and the cache.

        Args:
            ids: one int64 array per sample, at least one token each. cache: ``None`` begins a text.

        Raises:
            DataError: the tokens fit into no planned cache.
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
            raise DataError("there is no token to begin with; give at least one")
        return last, cache

    def chunks(self, ids: Sequence[Array], cache: Cache) -> Iterator[Fed]:
        """Feed some tokens of each sample, a chunk at a time, and yield the logits of each; the cache fills up."""
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
                f"{self._model.ckpt}: its logits have shape {list(logits.shape)}; a decoder gives N x T x vocabulary"
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
        if kind == "position":  # what pads stands where the last token does, as a place beyond the model is none
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
        """Say whether a mask is of the slots alone: as long as the caches, by its symbol."""
        first = self.forms[0]
        symbols = self._model.inputs[first.input].symbols
        return bool(symbols and mask.symbols) and mask.symbols[-1] == symbols[first.axis]


_NAMES = (("past", "past"), ("mask", "mask"), ("position", "position"), ("length", "length"), ("ids", "ids"))


def _kind(spec: TensorSpec, constants: Mapping[str, Array], model: Model) -> str:
    """Return what an input takes, by its name."""
    name = spec.name.lower()
    if spec.name in constants:
        return "constant"
    if "past" in name and len(spec.shape) < 3:  # past_length, past_mask
        name = name.replace("past", "")
        name = name if any(word in name for word, _ in _NAMES) else "length"
    found = next((kind for word, kind in _NAMES if word in name), "ids" if "token" in name else "")
    if not found:
        raise ModelError(
            f"{model.ckpt}: nothing is known to feed its input {spec.name!r}; a decoder takes ids, positions, a mask, "
            "the length of the past and the past itself, each by such a name"
        )
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _form(place: int, output: int, model: Model) -> Slot:
    """Return where the slots of a cache are: the only axis that is open, or the last but one."""
    spec = model.inputs[place]
    batch = spec.batch_axis or 0
    free = [axis for axis, size in enumerate(spec.shape) if size is None and axis != batch]
    return Slot(place, output, batch, free[0] if len(free) == 1 else len(spec.shape) - 2)


def _sizes(spec: TensorSpec, axis: int, model: Model, asked: tuple[int, ...]) -> tuple[int, ...]:
    fixed, symbol = spec.shape[axis], spec.symbols[axis] if spec.symbols else None
    return (fixed,) if fixed else model.dims.get(symbol or "") or tuple(sorted(set(asked)))


def _newest(array: Array, form: Slot, count: int) -> Array:
    """Return the last slots of what a model gave back: those of the new tokens."""
    size = array.shape[form.axis]
    if size == count:
        return array
    return np.moveaxis(np.moveaxis(array, form.axis, 0)[size - count :], 0, form.axis)


# ------------------------------------------------------------------------------------------------------------- the loop


class Rows(Protocol):
    """What a step keeps between calls; :class:`Cache` is one."""

    def keep(self, places: Sequence[int]) -> None:
        """Go on with some of the samples, in this order."""


Step: TypeAlias = Callable[[Sequence[Array], Any], "tuple[Array, Any]"]
"""``(ids, cache) -> (logits, cache)``: the next tokens of each sample (int64 arrays, at least one token), and what the
step before gave back (``None`` at first); the logits behind the last token of each, N x V, and a cache that can
:meth:`Rows.keep` some samples only."""

Choose: TypeAlias = Callable[[Array, Sequence[int], Sequence[Sequence[int]]], Array]
"""``(logits, places, texts) -> tokens``: N x V float32; for each row the place of its prompt among the prompts, and its
tokens so far, prompt included; N int64 back. :mod:`utils.postprocess.text.sampling` has some."""


class Limits(NamedTuple):
    """When a text is over.

    Attributes:
        tokens: most new tokens, of all prompts or one number for each.
        stop: tokens that end a text; they are not part of the answer.
        ended: whether new tokens end a text, such as by a string in them; these are part of the answer.
    """

    tokens: int | Sequence[int]
    stop: frozenset[int] = frozenset()
    ended: Callable[[Sequence[int]], bool] | None = None


@dataclass
class Continuation:
    """What follows a prompt.

    Attributes:
        ids: the new tokens, without one that stops.
        score: sum of the natural logarithms of the probabilities that the model gave them, and the one that stops; NaN
            where its logits were NaN, and nothing was chosen.
        counted: how many tokens that is of.
        why: it ended: ``stop`` (a token), ``ended`` (a string), ``limit``, or ``nan``.
    """

    ids: list[int] = field(default_factory=list)
    score: float = 0.0
    counted: int = 0
    why: str = "limit"


def generate(
    step: Step, prompts: Sequence[Array], limits: Limits, choose: Choose, timeline: Timeline | None = None
) -> list[Continuation]:
    """Continue a batch of prompts of any lengths, token by token; those that are over are no longer fed.

    Args:
        step: feeds tokens. prompts: int64, at least one token each. limits: when a text is over.
        choose: the next tokens. timeline: gets a span of :data:`FIRST` and one of :data:`NEXT` per further step.

    Returns:
        One per prompt, in order.
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
    """Choose a token for each row, note it, and return the rows whose texts go on."""
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


def log_probabilities(logits: Array, tokens: Array) -> Array:
    """Return the natural logarithms of the probabilities of some tokens, N float64, of N x V logits."""
    top = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # an infinite logit makes NaN, which is told as such
        rest = np.log(np.exp(logits - top).sum(axis=1, dtype=np.float64))
        chosen = np.take_along_axis(logits, tokens[:, None], axis=1)[:, 0].astype(np.float64)
        found: Array = chosen - top[:, 0] - rest
    return found
