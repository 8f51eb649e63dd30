"""Stateful voice activity models: layout, and processing chunk by chunk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array, Engine, ModelError
from utils.outputs import GRAPH, LOGITS, refuse_labels
from utils.postprocess.audio.speech_segments import Rules, Segmenter
from utils.preprocess.audio.resampling import Resampler
from utils.tasks import Model, Options
from utils.tasks.common.outputs import sigmoid
from utils.tasks.prepared import SequenceState

KEY = "voice_activity"
"""Metadata key: a JSON object with ``chunk`` and ``context`` in samples."""

CHUNK, CONTEXT = {8000: 256, 16000: 512}, {8000: 32, 16000: 64}
"""Silero's samples per chunk, and samples before it that are repeated in the input, by rate."""


class Layout(NamedTuple):
    """Input layout of a model."""

    rate: int  # in Hz
    chunk: int  # samples of one step
    context: int  # previous samples that are prepended
    places: tuple[int, int, int]  # input indices of sound, state and rate (-1: the model has no such input)

    @classmethod
    def of(cls, model: Model, options: Options) -> Layout:
        """Return the stored layout, else Silero's at ``--rate``.
        Raises ModelError if the model has other inputs, or invalid metadata."""
        stored = model.stored
        rate = stored.sample_rate or options.rate
        notes = stored.json(KEY, {})
        chunk, context = CHUNK.get(rate), CONTEXT.get(rate)
        if isinstance(notes, dict):
            chunk, context = notes.get("chunk", chunk), notes.get("context", context)
        if not (_is_count(chunk, 1) and _is_count(context, 0)):
            raise ModelError(
                f"{model.ckpt}: metadata {KEY!r} must have chunk and context in samples for {rate} Hz; export it again"
            )
        layout = cls(rate, int(chunk or 0), int(context or 0), _places(model))
        width = model.inputs[layout.places[0]].shape[1]
        if width is not None and width != layout.chunk + layout.context:
            raise ModelError(
                f"{model.ckpt}: takes {width} samples per step, and a chunk of {layout.chunk} with {layout.context} "
                f"before has {layout.chunk + layout.context} (at {rate} Hz); correct --rate"
            )
        return layout

    def chunks(self, samples: int) -> int:
        """Return the number of chunks of some samples, rounded up."""
        return -(-samples // self.chunk)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 1 << 20


def _places(model: Model) -> tuple[int, int, int]:
    found = {"sound": -1, "state": -1, "rate": -1}
    for place, spec in enumerate(model.inputs):
        is_float, rank = spec.dtype.kind == "f", len(spec.shape)
        kind = "sound" if is_float and rank == 2 else "state" if is_float and rank == 3 else "rate"
        if found[kind] >= 0 or (kind == "rate" and (is_float or rank > 1)):
            found["state"] = -1
            break
        found[kind] = place
    if min(found["sound"], found["state"]) < 0 or len(model.outputs) < 2:
        names = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in model.inputs)
        raise ModelError(
            f"{model.ckpt}: inputs {names}; expected sound [N, samples], a state of three dimensions and optionally "
            "the rate, and as outputs a probability [N, 1] and the next state"
        )
    return found["sound"], found["state"], found["rate"]


class Voices:
    """Probability of speech in several (``count``) parallel recordings, chunk by chunk."""

    def __init__(self, engine: Engine, layout: Layout, count: int) -> None:
        self._engine, self._layout, model = engine, layout, Model.of(engine)
        sound, state, rate = layout.places
        self._is_logit = model.form(None).kind == LOGITS and model.form(None).source == GRAPH
        refuse_labels(model.form(None), model.ckpt, "probabilities of speech are needed", "")
        self._dtype: np.dtype[np.generic] = engine.inputs[sound].dtype
        self._before = np.zeros((count, layout.context), np.float32)
        self._inputs: list[Array] = [np.zeros(0)] * len(engine.inputs)
        spec = engine.inputs[state]
        shape = [count if axis == spec.batch_axis else size for axis, size in enumerate(spec.shape)]
        self._inputs[state] = np.zeros([1 if size is None else size for size in shape], spec.dtype)
        if rate >= 0:
            spec = engine.inputs[rate]
            self._inputs[rate] = np.full([size or 1 for size in spec.shape], layout.rate, spec.dtype)

    def keep(self, going: Array) -> None:
        """Keep only some recordings: bool, one for each current recording."""
        if going.all():
            return
        state = self._layout.places[1]
        axis = self._engine.inputs[state].batch_axis or 0
        self._before = self._before[going]
        self._inputs[state] = np.compress(going, self._inputs[state], axis)

    def saved(self) -> list[Array]:
        """Return the state of the model, and the samples before the next chunk."""
        return [self._inputs[self._layout.places[1]], self._before]

    def restore(self, arrays: list[Array]) -> None:
        """Continue after the state that :meth:`saved` has returned."""
        self._inputs[self._layout.places[1]], self._before = arrays

    def hear(self, chunk: Array) -> Array:
        """Return the probabilities of the next chunk, float32 [count]; it has float32 [count, ``layout.chunk``]."""
        sound, state, _ = self._layout.places
        seen = np.concatenate([self._before, chunk], axis=1)
        self._inputs[sound] = seen.astype(self._dtype, copy=False)
        found, self._inputs[state] = self._engine(list(self._inputs))[:2]
        self._before = seen[:, seen.shape[1] - self._layout.context :]
        speech: Array = np.asarray(found, np.float32)[:, 0]
        return sigmoid(speech) if self._is_logit else speech


class Segment(NamedTuple):
    """Start and end of speech, in seconds."""

    start: float
    end: float


class VoiceStream:
    """Voice activity of a stream; the result equals that of the whole recording.

    Args:
        engine: the opened model, used for one recording at a time.
        layout: input layout of the model. rules: start and end of speech.
        rate: of the samples in Hz; ``None``: the model's. Other rates are resampled.

    Attributes:
        probability: of speech in the last complete chunk.
        probabilities: of the chunks that the last call of :meth:`feed` or :meth:`finish` has completed.
    """

    def __init__(self, engine: Engine, layout: Layout, rules: Rules, rate: int | None = None) -> None:
        self._layout, self._voices, self._segmenter = layout, Voices(engine, layout, 1), Segmenter(rules)
        self._resampler = Resampler(rate or layout.rate, layout.rate)
        self._left, self._samples = np.zeros(0, np.float32), 0
        self.probability = 0.0
        self.probabilities: list[float] = []

    @property
    def speaking(self) -> bool:
        """Whether the received audio ends in speech."""
        return self._segmenter.speaking

    @property
    def seconds(self) -> float:
        """Seconds of received audio."""
        return self._samples / self._layout.rate

    def feed(self, samples: Array) -> list[Segment]:
        """Add samples (float32 [S], mono, any number), and return the segments that are final now."""
        self.probabilities = []
        return self._take(self._resampler.feed(np.asarray(samples, np.float32)))

    def finish(self) -> list[Segment]:
        """End the stream, with its last chunk padded with zeros, and return the remaining segments."""
        self.probabilities = []
        done = self._take(self._resampler.feed(np.zeros(0, np.float32), last=True))
        if len(self._left):
            done += self._hear(np.pad(self._left, (0, self._layout.chunk - len(self._left))))
            self._left = self._left[:0]
        return done + self._in_seconds(self._segmenter.finish(self._samples))

    def saved(self) -> SequenceState:
        """Return the state of a stream at the model's rate."""
        values = {"samples": self._samples, "probability": self.probability, "segmenter": self._segmenter.saved()}
        return SequenceState(values, [*self._voices.saved(), self._left])

    def restore(self, state: SequenceState) -> None:
        """Continue a stream at the model's rate after the state that :meth:`saved` has returned."""
        self._samples, self.probability = state.values["samples"], state.values["probability"]
        self._segmenter.restore(state.values["segmenter"])
        *model, self._left = state.arrays
        self._voices.restore(model)

    def _take(self, samples: Array) -> list[Segment]:
        self._samples += len(samples)
        self._left = np.concatenate([self._left, samples])
        done: list[Segment] = []
        while len(self._left) >= self._layout.chunk:
            chunk, self._left = self._left[: self._layout.chunk], self._left[self._layout.chunk :]
            done += self._hear(chunk)
        return done

    def _hear(self, chunk: Array) -> list[Segment]:
        self.probability = float(self._voices.hear(chunk[None])[0])
        self.probabilities.append(self.probability)
        return self._in_seconds(self._segmenter.feed([self.probability]))

    def _in_seconds(self, found: list[tuple[int, int]]) -> list[Segment]:
        return [Segment(start / self._layout.rate, end / self._layout.rate) for start, end in found]
