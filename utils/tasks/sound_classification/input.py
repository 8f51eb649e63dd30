"""Input of a sound classifier: windows of a recording, as samples or as features.

Whatever is fixed by the training is in the metadata: ``features`` (:mod:`utils.preprocess.audio.features`) for a model
that takes features, else ``sample_rate``; and ``sound_classification``, a JSON object with the keys of :data:`USUAL`.
Flags override them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engine import Array, ConfigError, ModelError
from utils.preprocess.audio.features import KEY, Settings, features, settings_of
from utils.preprocess.audio.windows import FILLS, FRAMES, windows
from utils.tasks import ExportSetting, Model, Options
from utils.tasks.common.checks import setting_in_use

NOTE = "sound_classification"
"""Metadata key, optional."""

NORMS = ("none", "bands", "clip")
"""Normalisation of a window's features: none; each band, or all values, to mean 0 and deviation 1."""

USUAL: dict[str, Any] = {
    "seconds": 0.0,
    "fill": FILLS[0],
    "normalize": NORMS[0],
    "time_axis": 0,
    "full_scale": 1.0,
    "mean": 0.0,
    "std": 1.0,
    "padding": 0.0,
    "multi_label": False,
}
"""Defaults.

``seconds``: of a window; 0: as many as the input takes. ``fill``: what fills the window of a shorter recording, one of
:data:`.FILLS`; with ``frames``, its features are followed by frames of ``padding``.
``normalize``: one of :data:`NORMS`. ``time_axis``: of the input without its batch and channel axes, 1 or 2; 0: by its
shape. ``full_scale``: factor of samples in -1..1. ``mean``, ``std``: subtracted from features, and divided by.
``padding``: value of frames after the last one, before ``mean`` and ``std``. ``multi_label``: a sound may have several
classes, so scores are independent (sigmoid).
"""


def note(key: str, model: Model, options: Options | None = None) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    return setting_in_use(key, model, options, NOTE, USUAL, _is_one, "a valid value (docs/reference/speech.md)")


def _is_one(key: str, value: Any) -> bool:
    known = {"fill": FILLS, "normalize": NORMS, "time_axis": (0, 1, 2), "multi_label": (False, True)}
    if key in known:
        return (
            type(value) in (str, int, bool)
            and value in known[key]
            and isinstance(value, bool) == (key == "multi_label")
        )
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    least = {"seconds": 0.0, "full_scale": 0.0, "std": 0.0}.get(key, -np.inf)
    return number and (value > least or (key == "seconds" and value == 0))


@dataclass(frozen=True)
class Layout:
    """How a model takes sound.

    Attributes:
        settings: of the features; ``None``: it takes samples. rate: in Hz.
        length: samples of a window. frames: of the input; ``None``: as many as the window has.
        axes: shape of a window's input, with 1 for channels, and -1 for the axes of time and bands.
        time_last: bands come before time. fill, normalize, full_scale, mean, std, padding: see :data:`USUAL`.
    """

    settings: Settings | None
    rate: int
    length: int
    frames: int | None
    channel: bool
    time_last: bool
    fill: str
    normalize: str
    full_scale: float
    mean: float
    std: float
    padding: float

    @classmethod
    def of(cls, model: Model, options: Options) -> Layout:
        """Return the layout of a model; raise ModelError or ConfigError if it is not known, or not supported."""
        spec, stored = model.inputs[0], model.stored
        values = {key: note(key, model, options) for key in USUAL if key != "multi_label"}
        settings = settings_of(stored) if stored.text(KEY) is not None else None
        rank, inner = len(spec.shape), 1 if settings is None else 2
        channel = rank == inner + 2
        if rank not in (inner + 1, inner + 2) or (channel and spec.shape[1] not in (1, None)):
            what = "features, N x T x bands or N x 1 x T x bands" if settings else "samples, N x S or N x 1 x S"
            raise ModelError(
                f"{model.ckpt}: input {spec.name!r} has shape {spec.shape}, but a sound classifier takes {what}; store "
                f"its features under {KEY!r} (docs/reference/speech.md), or export it with such an input"
            )
        sides = tuple(spec.shape[rank - inner :])
        last, rate, time = False, stored.sample_rate, sides[0]
        if settings is None:
            if rate is None:
                raise ModelError(f"{model.ckpt}: has no 'sample_rate' in its metadata; {stored.fix}")
        else:
            last = _time_last(sides, settings.bands, values["time_axis"], model)
            rate, time = settings.rate, sides[1 if last else 0]
        if values["fill"] == FRAMES and (settings is None or time is None):
            raise ModelError(
                f"{model.ckpt}: fill {FRAMES!r} is for an input of features with a fixed number of frames; use another "
                f"--fill ({', '.join(one for one in FILLS if one != FRAMES)}), as in training"
            )
        length = round(values["seconds"] * rate) or _samples(time, settings)
        if not length:
            raise ConfigError(
                f"{model.ckpt}: its input has any length, and it stores no 'seconds'; pass --seconds, as in training"
            )
        del values["seconds"], values["time_axis"]
        return cls(settings, rate, length, time, channel, last, **values)

    def windows(self, samples: Array, hop: int, dtype: str) -> Array:
        """Return the windows of a recording (float32 [S], at the layout's rate) as the model takes them.

        Args:
            samples: of the recording. hop: samples from one window to the next.
        """
        cut = windows(samples * np.float32(self.full_scale), self.length, hop, self.fill)
        found = cut if self.settings is None else np.stack([self._features(one, self.settings) for one in cut])
        if self.channel:
            found = found[:, None]
        return np.ascontiguousarray(found, dtype)

    def _features(self, samples: Array, settings: Settings) -> Array:
        found = features(samples, settings)
        if self.frames is not None and len(found) != self.frames:
            more = max(0, self.frames - len(found))
            found = np.pad(found, ((0, more), (0, 0)), constant_values=self.padding)[: self.frames]
        if self.normalize != NORMS[0]:
            axis = 0 if self.normalize == "bands" else None
            wide = found.astype(np.float64)
            found = (wide - wide.mean(axis=axis)) / (wide.std(axis=axis) + 1e-5)
        found = (found - self.mean) / self.std
        return found.T if self.time_last else found


def _time_last(sides: Sequence[int | None], bands: int, axis: int, model: Model) -> bool:
    """Return whether time is the last axis of an input of features."""
    may = [sides[1 - place] in (bands, None) for place in (0, 1)]
    if axis:
        may = [place == axis - 1 and fits for place, fits in enumerate(may)]
    if not any(may):
        raise ModelError(
            f"{model.ckpt}: input {model.inputs[0].name!r} has axes of {sides[0]} and {sides[1]}, but features of "
            f"{bands} bands are stored; correct 'features', or --time_axis"
        )
    return not may[0]


def _samples(time: int | None, settings: Settings | None) -> int:
    """Return the samples of an input of this many samples or frames, 0 for an open size."""
    if time is None or settings is None:
        return time or 0
    return (time - 1) * settings.grid.hop + max(settings.grid.reach, 0)


EXPORT_SETTINGS = (
    ExportSetting("--normalize", NORMS, "prepare", partial(note, "normalize")),
    ExportSetting("--full_scale", (1.0, 32768.0), "prepare", partial(note, "full_scale")),
    ExportSetting("--time_axis", (1, 2), "prepare", partial(note, "time_axis")),
    ExportSetting("--fill", FILLS, "prepare", partial(note, "fill"), fine=True),
)
"""Settings that are often wrong after an export."""
