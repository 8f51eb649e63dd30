"""Log energies of sound in mel bands, frame by frame, in NumPy alone.

:class:`LogMel` is the definition of librosa and torchaudio, used by Whisper, NeMo and many others; :class:`FilterBank`
is Kaldi's, used by WeNet and FunASR. A model stores its settings as JSON (:func:`settings_of`). Everything is computed
in float64, each frame separately, so frames computed piece by piece (:class:`FeatureStream`) equal those of the whole
recording bit by bit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from engine import Array, ConfigError, ModelError
from utils.preprocess.audio.mel import SCALES, kaldi_bank, mel_bank
from utils.stored import ModelMetadata

KEY = "features"
"""Key of a model's metadata that holds the settings, as a JSON object with ``kind``."""

LOGS = ("log10", "ln", "none")
GUARDS = ("clamp", "add")
PADS = {"reflect": "reflect", "constant": "zero"}
WINDOWS = ("povey", "hamming", "hanning", "rectangular")

BLOCK = 2048
"""Frames computed at a time, which bounds the memory for long recordings."""

EDGES = ("reflect", "repeat", "zero", "none")
"""Padding of frames before the first and after the last sample: the sound reflected, without the sample at the edge
(numpy's ``reflect``) or with it (``symmetric``); zeros; or none, with only the frames that fit."""


class Grid(NamedTuple):
    """Division of a recording into frames.

    Attributes:
        size: samples of a frame. hop: samples from one to the next. first: start of the first frame; below 0: before
            the recording.
        reach: number of samples such that a recording of ``n`` has ``1 + (n - reach) // hop`` frames.
        edges: one of :data:`EDGES`.
    """

    size: int
    hop: int
    first: int
    reach: int
    edges: str

    def count(self, samples: int) -> int:
        """Return the number of frames of a recording with this number of samples."""
        return max(0, 1 + (samples - self.reach) // self.hop) if samples else 0

    def ready(self, samples: int) -> int:
        """Return the number of frames that can be cut from the first samples of a longer recording."""
        if -self.first >= samples:  # the reflected start may extend beyond the known samples
            return 0
        return min(self.count(samples), max(0, 1 + (samples - self.size - self.first) // self.hop))

    def cut(self, samples: Array, begin: int, frames: range, total: int | None = None) -> Array:
        """Return frames by their indices (in steps of 1), [len(frames), size], of samples from sample ``begin`` on.

        ``total`` is that of the whole recording; ``None``: unknown, and no frame extends beyond ``samples``.
        """
        start = self.first + frames.start * self.hop
        stop = self.first + (frames.stop - 1) * self.hop + self.size
        if not len(frames):
            return np.empty((0, self.size), samples.dtype)
        if start >= begin and stop <= begin + len(samples):
            view = np.lib.stride_tricks.sliding_window_view(samples[start - begin : stop - begin], self.size)
            return view[:: self.hop]
        places = self.first + np.arange(frames.start, frames.stop)[:, None] * self.hop + np.arange(self.size)
        if self.edges == "zero":
            within = (places >= begin) & (places < begin + len(samples))
            return np.where(within, samples[np.clip(places - begin, 0, len(samples) - 1)], 0)
        return np.asarray(samples[self._mirrored(places, begin + len(samples) if total is None else total) - begin])

    def _mirrored(self, places: Array, total: int) -> Array:
        last = 2 * total - (1 if self.edges == "repeat" else 2)
        turned: Array = places % (last + 1 if self.edges == "repeat" else max(last, 1))
        return np.asarray(np.minimum(turned, last - turned))


def _weighed(spectrum: Array, bank: Array) -> Array:
    """Return sums over frequency; not with BLAS, whose rounding of a row depends on the number of rows."""
    return np.asarray(np.einsum("tf,mf->tm", spectrum, bank))


@lru_cache
def _hann(size: int, periodic: bool) -> Array:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / (size if periodic else size - 1))


@lru_cache
def _window(shape: str, size: int) -> Array:
    cosine = np.cos(2 * np.pi * np.arange(size) / (size - 1))
    found: Array = {
        "povey": (0.5 - 0.5 * cosine) ** 0.85,
        "hanning": 0.5 - 0.5 * cosine,
        "hamming": 0.54 - 0.46 * cosine,
        "rectangular": np.ones(size),
    }[shape]
    return found


def _refuse(fine: bool, name: str, value: object, wanted: str) -> None:
    if not fine:
        raise ConfigError(f"features: {name} {value!r} must be {wanted}")


def _check_sizes(rate: int, window: int, hop: int, bands: int) -> None:
    for name, value in (("rate", rate), ("window", window), ("hop", hop), ("bands", bands)):
        _refuse(isinstance(value, int) and value >= 1, name, value, "a whole number of at least 1")
    _refuse(window >= 2, "window", window, "at least 2 samples")


def _check_band(low: float, high: float, rate: int) -> None:
    _refuse(0 <= low < high <= rate / 2, "low and high", (low, high), f"rising, from 0 to {rate / 2:g} Hz")


@dataclass(frozen=True)
class LogMel:
    """Logarithms of mel energies, as of ``librosa.feature.melspectrogram`` or torchaudio's ``MelSpectrogram``.

    Attributes:
        rate: in Hz. fft: points of the transform. window, hop: samples of a frame's Hann window, and between frames.
        bands: number of mel filters. low, high: their limits in Hz; ``high`` ``None``: half the rate.
        scale, norm: of the filters, see :func:`utils.preprocess.audio.mel.mel_bank`.
        power: 2 for energies, 1 for magnitudes.
        centre: frame ``t`` is centred at sample ``t * hop``, with padding by ``pad`` (``reflect``, or ``constant``:
            zeros); else it begins there.
        periodic: the window is one period of a cosine, not symmetric.
        preemphasis: share of the previous sample that is subtracted from each; 0: none.
        log: ``log10``, ``ln`` or ``none``. floor: lower limit of energies (``guard`` ``clamp``), or added to them
            (``add``).
        below: values are at least the recording's maximum minus this; ``None``: no limit.
        add, divide: finally ``(x + add) / divide``.
        keep_last: ``False`` drops the last frame, as Whisper does.
    """

    rate: int = 16000
    fft: int = 400
    window: int = 400
    hop: int = 160
    bands: int = 80
    low: float = 0.0
    high: float | None = None
    scale: str = "slaney"
    norm: bool = True
    power: float = 2.0
    centre: bool = True
    pad: str = "reflect"
    periodic: bool = True
    preemphasis: float = 0.0
    log: str = "log10"
    floor: float = 1e-10
    guard: str = "clamp"
    below: float | None = None
    add: float = 0.0
    divide: float = 1.0
    keep_last: bool = True
    kind: ClassVar[str] = "log_mel"

    def __post_init__(self) -> None:
        for name, known in (("scale", SCALES), ("log", LOGS), ("guard", GUARDS), ("pad", tuple(PADS))):
            _refuse(getattr(self, name) in known, name, getattr(self, name), f"one of {', '.join(known)}")
        _check_sizes(self.rate, self.window, self.hop, self.bands)
        _refuse(self.fft >= self.window, "fft", self.fft, f"at least the window's {self.window} samples")
        _check_band(self.low, self.rate / 2 if self.high is None else self.high, self.rate)
        _refuse(self.floor > 0 or self.log == "none", "floor", self.floor, "above 0")
        _refuse(self.divide != 0, "divide", self.divide, "another number")

    @property
    def grid(self) -> Grid:
        """Position of the frames."""
        inset = (self.fft - self.window) // 2
        half = self.fft // 2 if self.centre else 0
        reach = self.fft - 2 * half + (0 if self.keep_last else self.hop)
        return Grid(self.window, self.hop, inset - half, reach, PADS[self.pad] if self.centre else "none")

    @property
    def bank(self) -> Array:
        """The mel filters."""
        high = self.rate / 2 if self.high is None else self.high
        return mel_bank(self.rate, self.fft, self.bands, self.low, high, self.scale, self.norm)

    def of_frames(self, frames: Array) -> Array:
        """Return the features of frames before ``below``, ``add`` and ``divide``: float64 [T, bands]."""
        spectrum = np.abs(np.fft.rfft(frames * _hann(self.window, self.periodic), self.fft, axis=1))
        if self.power != 1:
            spectrum **= self.power
        mel = _weighed(spectrum, self.bank)
        if self.log == "none":
            return mel
        mel = np.maximum(mel, self.floor) if self.guard == "clamp" else mel + self.floor
        return np.log10(mel) if self.log == "log10" else np.log(mel)


WHISPER = LogMel(below=8.0, add=4.0, divide=4.0, keep_last=False)
"""Whisper's settings; large version 3 models have ``bands=128``."""


@dataclass(frozen=True)
class FilterBank:
    """Logarithms of mel energies, as of Kaldi's ``compute-fbank-feats`` with ``--dither=0``.

    Attributes:
        rate: in Hz. window, hop: samples of a frame, and between frames. bands: number of mel filters.
        low, high: their limits in Hz; ``high`` of 0 or less is relative to half the rate.
        shape: of the window, one of :data:`WINDOWS`.
        preemphasis: share of the previous sample that is subtracted from each, within a frame.
        centred: a frame's mean is subtracted first.
        snip_edges: only frames within the recording; else one per hop, with the sound reflected at its ends.
        full_scale: factor of samples: 32768 for models trained on 16-bit samples, or 1.
        energy: the logarithm of a frame's energy is the first value. energy_floor: its lower limit; 0: none.
        floor: lower limit of mel energies.
        empty: filters may contain no frequency of the transform, as in torchaudio; their values are that of ``floor``.
    """

    rate: int = 16000
    window: int = 400
    hop: int = 160
    bands: int = 80
    low: float = 20.0
    high: float = 0.0
    shape: str = "povey"
    preemphasis: float = 0.97
    centred: bool = True
    snip_edges: bool = True
    full_scale: float = 32768.0
    energy: bool = False
    energy_floor: float = 0.0
    floor: float = float(np.finfo(np.float32).eps)
    empty: bool = False
    kind: ClassVar[str] = "fbank"

    def __post_init__(self) -> None:
        _refuse(self.shape in WINDOWS, "shape", self.shape, f"one of {', '.join(WINDOWS)}")
        _check_sizes(self.rate, self.window, self.hop, self.bands)
        _check_band(self.low, self.upper, self.rate)
        _refuse(self.floor > 0, "floor", self.floor, "above 0")

    @property
    def upper(self) -> float:
        """Upper limit of the filters in Hz."""
        return self.high if self.high > 0 else self.rate / 2 + self.high

    @property
    def fft(self) -> int:
        """Points of the transform: the next power of two."""
        return 1 << (self.window - 1).bit_length()

    @property
    def grid(self) -> Grid:
        """Position of the frames."""
        if self.snip_edges:
            return Grid(self.window, self.hop, 0, self.window, "none")
        return Grid(self.window, self.hop, self.hop // 2 - self.window // 2, self.hop - self.hop // 2, "repeat")

    @property
    def bank(self) -> Array:
        """The mel filters."""
        return kaldi_bank(self.rate, self.fft, self.bands, self.low, self.upper, self.empty)

    def of_frames(self, frames: Array) -> Array:
        """Return the features of frames: float64 [T, bands], or [T, bands + 1] with ``energy``."""
        frames = frames * self.full_scale
        if self.centred:
            frames = frames - frames.mean(axis=1, keepdims=True)
        columns = []
        if self.energy:
            power = np.maximum((frames**2).sum(axis=1, keepdims=True), self.floor)
            columns.append(np.log(np.maximum(power, self.energy_floor) if self.energy_floor > 0 else power))
        before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
        frames = (frames - self.preemphasis * before) * _window(self.shape, self.window)
        spectrum = np.abs(np.fft.rfft(frames, self.fft, axis=1)[:, :-1]) ** 2
        columns.append(np.log(np.maximum(_weighed(spectrum, self.bank), self.floor)))
        return np.concatenate(columns, axis=1) if self.energy else columns[0]


Settings: TypeAlias = "LogMel | FilterBank"
"""Settings of features."""


def log_mel(samples: Array, settings: LogMel = LogMel()) -> Array:
    """Return log-mel features of a recording (float [S], mono, at ``settings.rate``), float32 [T, bands]."""
    return features(samples, settings)


def features(samples: Array, settings: Settings) -> Array:
    """Return the features of a recording, float32 [T, bands]."""
    stream = FeatureStream(settings, whole=True)
    return _levelled(stream.feed(samples, last=True), settings).astype(np.float32)


def _levelled(found: Array, settings: Settings) -> Array:
    """Apply ``below``, which needs the whole recording, ``add`` and ``divide`` to log-mel values."""
    if not isinstance(settings, LogMel) or not found.size:
        return found
    if settings.below is not None:
        found = np.maximum(found, found.max() - settings.below)
    return found if settings.add == 0 and settings.divide == 1 else (found + settings.add) / settings.divide


class FeatureStream:
    """Features of a recording that arrives in pieces; joined, they equal those of the whole bit by bit.

    With ``whole``, returns float64 values of :meth:`LogMel.of_frames` for :func:`features`, which finishes them. Raises
    ConfigError if the settings need the whole recording (``below``).
    """

    def __init__(self, settings: Settings, *, whole: bool = False) -> None:
        if isinstance(settings, LogMel) and settings.below is not None and not whole:
            raise ConfigError(
                f"features limited to {settings.below:g} below the recording's maximum depend on all of it, so they "
                "cannot be computed piece by piece; compute them from the whole recording"
            )
        self._settings, self._grid, self._whole = settings, settings.grid, whole
        self._kept, self._begin, self._done = np.zeros(0), 0, 0
        self._before: float | None = None

    def feed(self, samples: Array, last: bool = False) -> Array:
        """Return the features that can be computed with the next (or last) samples, float32 [T, bands]; T may be 0."""
        self._kept = np.concatenate([self._kept, self._emphasised(np.asarray(samples, np.float64))])
        total = self._begin + len(self._kept)
        stop = self._grid.count(total) if last else self._grid.ready(total)
        parts = [
            self._settings.of_frames(
                self._grid.cut(self._kept, self._begin, range(start, min(start + BLOCK, stop)), total if last else None)
            )
            for start in range(self._done, stop, BLOCK)
        ]
        self._done = max(self._done, stop)
        self._forget(total)
        width = self._settings.bands + (isinstance(self._settings, FilterBank) and self._settings.energy)
        found = np.concatenate(parts) if parts else np.zeros((0, width))
        return found if self._whole else _levelled(found, self._settings).astype(np.float32)

    def _emphasised(self, samples: Array) -> Array:
        """Apply the preemphasis of log-mel features to samples."""
        share = self._settings.preemphasis if isinstance(self._settings, LogMel) else 0.0
        if not share or not len(samples):
            return samples
        first = 0.0 if self._before is None else self._before
        self._before = float(samples[-1])
        return samples - share * np.concatenate([[first], samples[:-1]])

    def _forget(self, total: int) -> None:
        """Drop samples that no later frame needs; the last ones may be needed for reflection."""
        needed = min(self._grid.first + self._done * self._grid.hop, total - 2 * self._grid.size)
        if needed > self._begin:
            self._kept = self._kept[needed - self._begin :].copy()
            self._begin = needed


def settings_to_json(settings: Settings) -> str:
    """Return settings as the JSON that an export stores under :data:`KEY`."""
    return json.dumps({"kind": settings.kind, **asdict(settings)})


def settings_of(stored: ModelMetadata, default: Settings | None = None) -> Settings:
    """Return the settings stored in a model. Raises ModelError if they are invalid, or missing without a default."""
    found: Any = stored.json(KEY)
    where = f"{stored.ckpt or 'the model'}: metadata {KEY!r}"
    if found is None:
        if default is not None:
            return default
        raise ModelError(f"{where}: is missing, so the model's features are not known; {stored.fix}")
    kinds: dict[Any, type[LogMel] | type[FilterBank]] = {one.kind: one for one in (LogMel, FilterBank)}
    if not isinstance(found, dict) or found.get("kind") not in list(kinds):
        raise ModelError(f"{where}: has no 'kind' of {' or '.join(kinds)}; {stored.fix}")
    cls = kinds[found.pop("kind")]
    unknown = sorted(set(found) - {field.name for field in fields(cls)})
    if unknown:
        raise ModelError(f"{where}: {unknown[0]!r} is not one of its settings; {stored.fix}")
    try:
        return cls(**found)
    except (ConfigError, TypeError) as error:
        raise ModelError(f"{where}: {error}; {stored.fix}") from error
