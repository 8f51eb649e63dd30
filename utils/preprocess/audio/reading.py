"""Recordings as models take them: decoded, mono, float32, at one rate.

WAV is read by :mod:`.wav`, other formats (FLAC, Ogg, rarer forms of WAV) by soundfile, and soxr resamples; both come
with the extra ``audio``.

The same recording gives the same samples however it is stored:

- integers are scaled to -1..1; floats are unchanged, and rejected if their values are those of integers;
- channels are averaged, with a warning;
- other rates are resampled, with a warning;
- files shorter than their header declares, NaN, empty recordings and files that are not sound are rejected;
- recordings that would take too much memory (:data:`MOST_VALUES`) are rejected by their header, before decoding.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError, stage
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import reason_of
from utils.preprocess.audio.resampling import resampled
from utils.preprocess.audio.wav import is_wav, read_frames, read_head

EXTENSIONS = (
    *(".wav", ".wave", ".flac", ".ogg", ".oga", ".opus"),
    *(".aif", ".aiff", ".au", ".mp3", ".w64", ".rf64", ".caf"),
)
"""Endings, in any case, of the names of recordings."""

NOT_SOUND = "not a sound file (its extension is not one of " + " ".join(EXTENSIONS) + ")"

SLACK = 0.05
"""Tolerance in seconds for a listed end after the recording's, as lists contain rounded times."""

LOUDEST = 64.0
"""Maximum of floats; larger ones are not in -1..1."""

SHORTEST = 0.025
"""Seconds of a frame of most features; shorter recordings are silent to a model."""

RATES = 1000, 1_000_000
"""Minimum and maximum rate of a recording in Hz; speech needs more than the minimum."""

MOST_SECONDS = 1e8
"""Maximum of listed times, three years; larger ones would overflow as numbers of samples."""

MOST_VALUES = 1 << 28
"""Maximum number of samples of all channels read at once: 1 GiB as float32, 4.5 hours at 16 kHz."""

QUIET = 0.25
"""Share of a part, at its end, that is searched for the quietest place."""

BLOCKS = 100
"""Blocks of that share whose energies are compared."""

_warned: set[tuple[str, ...]] = set()


class Recording(NamedTuple):
    """Location of a sample of a data set.

    Attributes:
        path: the file.
        start: start in the file, in seconds. seconds: duration; ``None``: to the file's end.
        name: for reports; empty: the path.
    """

    path: Path
    start: float = 0.0
    seconds: float | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or str(self.path)

    @property
    def own_path(self) -> Path:
        """Path for naming a drawing: the file's, with the start in it."""
        part = f"_{self.start:g}s" if self.start else ""
        return self.path.with_name(f"{self.path.stem}{part}{self.path.suffix}")


class Sound(NamedTuple):
    """Samples of a recording.

    Attributes:
        samples: float32 [S], mono, -1..1. rate: in Hz. name: for reports.
    """

    samples: Array
    rate: int
    name: str

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate


def is_sound(name: str) -> bool:
    """Return whether a file name has the ending of a recording, in any case."""
    return name.lower().endswith(EXTENSIONS)


def read_sound(recording: Recording | str | os.PathLike[str], rate: int | None = None, *, exact: bool = False) -> Sound:
    """Read a recording, or a part of one, at ``rate`` Hz or its own (``exact``: never resampled). Thread-safe.

    Raises DataError if the file is missing, empty, not sound, damaged, truncated, or has unusable samples, and
    ConfigError if a required package is not installed.
    """
    one = recording if isinstance(recording, Recording) else Recording(Path(recording))
    try:
        check_regular(one.path)
        frames, own = _frames(one)
    except OSError as error:
        raise DataError(f"{one}: cannot be read ({error.strerror or reason_of(error)}); check the path") from error
    if not RATES[0] <= own <= RATES[1]:
        raise DataError(f"{one}: its header says {own} Hz, which must be {RATES[0]} to {RATES[1]} Hz; correct it")
    with stage("decode"):
        samples = _mono(frames, one)
        _refuse_unusable(samples, one)
        if rate is not None and len(samples) < SHORTEST * own:
            warnings.warn(f"{one}: {len(samples) / own:.3g} s long, and a frame has {SHORTEST:g} s", stacklevel=2)
        if rate is not None and rate != own:
            if exact:
                raise DataError(f"{one}: {own} Hz, but {rate} Hz are needed; resample it first")
            _refuse_long(one, len(samples) * rate // own)
            _warn_once(f"recordings of {own} Hz are resampled to {rate} Hz", one)
            samples, own = resampled(samples, own, rate), rate
    return Sound(samples, own, str(one))


def _frames(one: Recording) -> tuple[Array, int]:
    """Return the frames of a recording, float32 [frames, channels], and its rate."""
    with open(one.path, "rb") as stream:
        first = stream.read(12)
        if not first:
            raise DataError(f"{one}: empty file; replace it")
        if is_wav(first):
            head = read_head(stream, str(one))
            if head is not None:
                _refuse_cut(one, head.frames, head.declared, head.rate)
                start, stop = _part(one, head.frames, head.rate)
                _refuse_long(one, stop - start, head.channels)
                with stage("disk"):
                    return read_frames(stream, head, start, stop), head.rate
    return _by_soundfile(one, first)


def _by_soundfile(one: Recording, first: bytes) -> tuple[Array, int]:
    if not is_sound(one.path.name) or not _is_meant(first, one.path.suffix.lower()):
        raise DataError(f"{one}: not a sound file (it begins with {first[:8]!r}); replace it")
    with extra(f"{one.path.suffix.lower()} ({one.path.name})", "audio"):
        import soundfile
    try:
        with stage("decode"), soundfile.SoundFile(one.path) as file:
            known = file.frames < 1 << 62  # larger values mean that libsndfile does not know the length
            start, stop = _part(one, file.frames if known else None, file.samplerate)
            _refuse_long(one, 0 if stop is None else stop - start, file.channels)
            found = _read_part(file, start, stop, one)
            if known or stop is not None:
                _refuse_cut(one, len(found), stop - start, file.samplerate)
            return found, file.samplerate
    except soundfile.LibsndfileError as error:
        raise DataError(f"{one}: damaged, truncated, or not a sound file ({reason_of(error)}); replace it") from error


_CONTAINERS = (b"RIFF", b"RIFX", b"RF64")
_BEGINNINGS = (*_CONTAINERS, b"fLaC", b"OggS", b"ID3", b".snd", b"dns.", b"riff", b"caff")


def _is_meant(first: bytes, ending: str) -> bool:
    """Return whether a file begins like a supported format; libsndfile would try twenty others too."""
    if ending in (".wav", ".wave"):
        return first[:4] in _CONTAINERS
    aiff = first[:4] == b"FORM" and first[8:12] in (b"AIFF", b"AIFC")
    mpeg = len(first) > 1 and first[0] == 0xFF and first[1] >= 0xE0  # a frame of MP3 without a tag before it
    return aiff or mpeg or first.startswith(_BEGINNINGS)


_BLOCK = 1 << 20
"""Frames read at a time if their number is not known."""


def _read_part(file: Any, start: int, stop: int | None, one: Recording) -> Array:
    if start:  # seeking fails with another error in a truncated FLAC
        file.seek(start)
    if stop is not None:
        return file.read(stop - start, dtype="float32", always_2d=True)  # type: ignore[no-any-return]
    blocks, frames = list[Array](), 0  # the length of a live stream is not in the file
    while not blocks or len(blocks[-1]):
        blocks.append(file.read(_BLOCK, dtype="float32", always_2d=True))
        frames += len(blocks[-1])
        _refuse_long(one, frames, file.channels)
    return np.concatenate(blocks)


def _refuse_long(one: Recording, frames: int, channels: int = 1) -> None:
    if frames * channels > MOST_VALUES:
        raise DataError(
            f"{one}: {frames * channels} samples, but at most {MOST_VALUES} are read at once; list its parts by offset "
            "and duration, or correct its header"
        )


def _refuse_cut(one: Recording, found: int, declared: int, rate: int) -> None:
    if found < declared:
        raise DataError(
            f"{one}: truncated: its header says {declared / rate:.2f} s, but it has {found / rate:.2f} s; copy it again"
        )


def _part(one: Recording, frames: int | None, rate: int) -> tuple[int, Any]:
    """Return the first frame of a recording's part and the one after its last."""
    if not all(abs(value) <= MOST_SECONDS for value in (one.start, one.seconds or 0.0)):
        raise DataError(f"{one}: offset {one.start:g} s and duration {one.seconds} s are invalid; correct them")
    start = round(one.start * rate)
    stop = frames if one.seconds is None else start + round(one.seconds * rate)
    if frames is None:
        return start, stop
    if stop is None or abs(stop - frames) <= SLACK * rate:
        stop = frames
    if start > stop or stop > frames or start < 0 or (start == stop and frames):
        end = "the end" if one.seconds is None else f"{one.start + one.seconds:g} s"
        raise DataError(
            f"{one}: {one.start:g} s to {end} is listed, but {one.path.name} is {frames / rate:.2f} s long; correct it"
        )
    return start, stop


def _mono(frames: Array, one: Recording) -> Array:
    if frames.shape[1] == 1:
        return frames[:, 0]
    _warn_once(f"recordings of {frames.shape[1]} channels are averaged to one", one)
    return np.asarray(frames.mean(axis=1, dtype=np.float64).astype(np.float32))


def _refuse_unusable(samples: Array, one: Recording) -> None:
    if not len(samples):
        raise DataError(f"{one}: holds no samples; replace it")
    peak = float(np.abs(samples).max())
    if not np.isfinite(peak):
        lost = int((~np.isfinite(samples)).sum())
        raise DataError(f"{one}: {lost} of {len(samples)} samples are NaN or infinite; replace it")
    if peak > LOUDEST:
        raise DataError(f"{one}: its floats go up to {peak:g}, but must be in -1..1; divide it by its full scale")
    if samples.min() == samples.max() and (len(samples) > 1 or not peak):
        warnings.warn(f"{one}: all samples are {samples[0]:g}: silence", stacklevel=2)


def _warn_once(what: str, one: Recording) -> None:
    """Warn about a property of recordings once in a run, with the first recording that has it."""
    if (what,) not in _warned:
        _warned.add((what,))
        warnings.warn(f"{what}, the first: {one}", stacklevel=2)


def quiet_parts(samples: Array, most: int) -> Iterator[Array]:
    """Yield a recording in parts of at most ``most`` samples.

    A part ends in the middle of the quietest hundredth of its last quarter; the last part is the remainder, and an
    empty recording is one part.
    """
    while len(samples) > most:
        begin = max(1, round(most * (1 - QUIET)))
        block = max(1, (most - begin) // BLOCKS)
        tail = samples[begin:most]
        blocks = tail[: len(tail) // block * block].reshape(-1, block).astype(np.float64)
        cut = begin + (int((blocks**2).sum(axis=1).argmin()) * block + block // 2 if len(blocks) else 0)
        yield samples[:cut]
        samples = samples[cut:]
    yield samples
