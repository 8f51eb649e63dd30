"""Speaker embeddings: windows of speech, described by an encoder and averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, ModelError
from tecoinfer_modelzoo.json_values import is_number
from tecoinfer_modelzoo.once import Once
from utils.preprocess.audio.features import settings_of
from utils.preprocess.audio.reading import Recording
from utils.preprocess.audio.speech import Windows
from utils.tasks import Model, Options
from utils.tasks.common.fixed_rows import outputs_of

NOTE = "verification"
"""Metadata key of the encoder, optional: an object with ``threshold`` (least similarity of one speaker), ``frames`` (of
a window, if the input's length is open), ``step`` (frames between windows) and ``level`` (dB of full scale, or
null)."""

GATES = ("energy", "none")
"""Methods that remove pauses."""


class Heard(NamedTuple):
    """A prepared recording: windows P x frames x bands, seconds of speech, and seconds in all."""

    recording: Recording
    windows: Array
    seconds: float
    sound: float = 0.0


@dataclass(frozen=True)
class Notes:
    """Settings of windows and comparison: the flags', else the stored ones."""

    windows: Windows  # division of a recording into windows
    threshold: float | None  # least similarity of one speaker; None: unknown

    @classmethod
    def of(cls, model: Model, options: Options) -> Notes:
        """Read the settings of an encoder. Raises ModelError if a stored value is invalid. Raises ConfigError if the
        model does not take features of that size, or the number of frames is unknown."""
        settings = settings_of(model.stored)
        stored = model.stored.json(NOTE, {})
        if not isinstance(stored, dict):
            raise _wrong(model, f"{stored!r} is not a JSON object")
        shape = model.inputs[0].shape if len(model.inputs) == 1 else ()
        if len(shape) != 3 or shape[2] not in (settings.bands, None):
            shapes = ", ".join(str(list(one.shape)) for one in model.inputs)
            raise ConfigError(f"{model.ckpt}: takes {shapes}; expected N x T x {settings.bands} (bands)")
        frames = shape[1] if shape[1] is not None else _number(model, stored, "frames", None)
        if frames is None:
            raise ConfigError(
                f"{model.ckpt}: its number of frames is open; export it with a fixed one, or store 'frames'"
            )
        step = _number(model, stored, "step", max(1, int(frames) // 2))
        level = _number(model, stored, "level", None)
        threshold = _number(model, stored, "threshold", None) if options.threshold is None else options.threshold
        gate = options.gate == "energy"
        windows = Windows(settings, int(frames), int(step or 1), level, gate, options.least_speech)
        return cls(windows, threshold)

    def same(self, score: float) -> bool | None:
        """Return whether a score means one speaker; ``None`` if the threshold is unknown or the score is NaN."""
        if self.threshold is None or score != score:  # NaN
            return None
        return score >= self.threshold


def _number(model: Model, stored: Mapping[str, Any], key: str, default: float | None) -> float | None:
    value: float | None = stored.get(key, default)
    if value is not None and not is_number(value):
        raise _wrong(model, f"{key} {value!r} must be a number")
    return value


def _wrong(model: Model, what: str) -> ModelError:
    return ModelError(f"{model.ckpt}: metadata {NOTE!r}: {what}; export the model again")


def similarity(one: Array, other: Array) -> float:
    """Return the cosine of the angle between two descriptions; NaN if one of them is 0."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size else float("nan")


class VoiceDescriber:
    """Description of recordings, each computed once, in the batch where it occurs first.

    Calls have a fixed size, so that the result of a recording does not depend on the other recordings.

    Args:
        engine: of the encoder. model: its tensors. rows: windows per call, if the model's batch is open.
    """

    def __init__(self, engine: Any, model: Model, rows: int) -> None:
        self._engine, self._model, self._rows = engine, model, model.batch or rows
        self._described: Once[Recording, Array] = Once()

    def of(self, heard: Sequence[Heard]) -> tuple[list[Array], dict[Recording, float]]:
        """Return a description of each recording, D float32, and the seconds of newly described recordings."""
        known = {one.recording: one for one in heard}
        fresh: dict[Recording, float] = {}

        def make(new: Sequence[Recording]) -> list[Array]:
            fresh.update((key, known[key].sound) for key in new)
            return self._made([known[key].windows for key in new])

        return self._described.of([one.recording for one in heard], make), fresh

    def _made(self, windows: Sequence[Array]) -> list[Array]:
        """Describe new recordings by the mean of their windows' descriptions, each scaled to length 1."""
        found = outputs_of(self._engine, np.concatenate(windows).astype(self._model.float_dtype), self._rows)[0]
        if found.ndim != 2 or found.dtype.kind != "f":
            raise ModelError(
                f"{self._model.ckpt}: its first output is {list(found.shape)} {found.dtype}; expected N x D floats"
            )
        rows = found.astype(np.float64)
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(sizes == 0, 1, sizes)
        ends = np.cumsum([len(one) for one in windows])[:-1]
        return [part.mean(axis=0).astype(np.float32) for part in np.split(rows, ends)]
