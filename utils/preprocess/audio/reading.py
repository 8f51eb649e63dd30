"""Recordings as models want them: decoded, mono, float32, at one rate.

WAV is read here (:mod:`.wav`); what else there is (FLAC, Ogg, WAV in rarer forms) by soundfile, and another rate made
by soxr: both come with the extra ``audio``.

Rules, chosen so that one recording gives the same samples however it is stored:

- whole numbers are scaled to -1..1; floats are as they are, and refused where they were meant as whole numbers;
- channels are mixed down to their mean, and that is said;
- another rate is resampled, and that is said;
- a file that holds less than its head says is refused, and so are NaN, no samples at all, and what is no sound;
- what would take too much memory (:data:`MOST_VALUES`) is refused by its head, before it is decoded.
"""

from __future__ import annotations

import os
import warnings
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
    ".wav",
    ".wave",
    ".flac",
    ".ogg",
    ".oga",
    ".opus",
    ".aif",
    ".aiff",
    ".au",
    ".mp3",
    ".w64",
    ".rf64",
    ".caf",
)
"""File name endings, in any case, that make a file a recording."""

NOT_SOUND = "not a sound file (its extension is none of " + " ".join(EXTENSIONS) + ")"

SLACK = 0.05
"""Seconds by which a listed end may miss the recording's: lists have rounded times."""

LOUDEST = 64.0
"""Floats beyond this were not meant as -1..1."""

SHORTEST = 0.025
"""Seconds of a frame, as most features are made of it; in less nothing can be heard."""

RATES = 1000, 1_000_000
"""Hz that a recording can have; sound of fewer has no speech in it, and a head that says so is wrong."""

MOST_SECONDS = 1e8
"""Three years: what a list says beyond that is no time in a recording, and no number of samples either."""

MOST_VALUES = 1 << 28
"""Samples of all channels that are read at once: 1 GiB as float32, four and a half hours at 16 kHz."""

_told: set[tuple[str, ...]] = set()


class Recording(NamedTuple):
    """Where a sample of a data set is.

    Attributes:
        path: the file.
        start: where it begins in the file, in seconds. seconds: how long it is; ``None``: to the file's end.
        name: what reports call it; empty: the path.
    """

    path: Path
    start: float = 0.0
    seconds: float | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or str(self.path)

    @property
    def own_path(self) -> Path:
        """The path that a drawing of it is named after: the file's, with where it begins in that."""
        part = f"_{self.start:g}s" if self.start else ""
        return self.path.with_name(f"{self.path.stem}{part}{self.path.suffix}")


class Sound(NamedTuple):
    """A recording that was read.

    Attributes:
        samples: float32 [S], mono, -1..1. rate: in Hz. name: for reports.
    """

    samples: Array
    rate: int
    name: str

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


def is_sound(name: str) -> bool:
    """Say whether a file name ends like a recording's, in any case."""
    return name.lower().endswith(EXTENSIONS)


def read_sound(recording: Recording | str | os.PathLike[str], rate: int | None = None, *, exact: bool = False) -> Sound:
    """Read a recording, or a part of one; safe to call from several threads at once.

    Args:
        recording: what to read.
        rate: in Hz, what it is to have; ``None``: its own.
        exact: another rate is refused, not resampled.

    Raises:
        DataError: the file is missing, empty, no sound, damaged, cut short, or holds what cannot be used.
        ConfigError: a package that it needs is not installed.
    """
    one = recording if isinstance(recording, Recording) else Recording(Path(recording))
    try:
        check_regular(one.path)
        frames, own = _frames(one)
    except OSError as error:
        raise DataError(f"{one}: cannot be read ({error.strerror or reason_of(error)}); check the path") from error
    if not RATES[0] <= own <= RATES[1]:
        raise DataError(f"{one}: its head says {own} Hz, and sound has {RATES[0]} to {RATES[1]} Hz; correct its head")
    with stage("decode"):
        samples = _mono(frames, one)
        _refuse_unusable(samples, one)
        if rate is not None and len(samples) < SHORTEST * own:
            warnings.warn(f"{one}: {len(samples) / own:.3g} s long, in which nothing can be heard", stacklevel=2)
        if rate is not None and rate != own:
            if exact:
                raise DataError(f"{one}: {own} Hz, and {rate} Hz are asked for; resample it first")
            _refuse_long(one, len(samples) * rate // own)
            _tell(f"recordings of {own} Hz are resampled to {rate} Hz", one)
            samples, own = resampled(samples, own, rate), rate
    return Sound(samples, own, str(one))


def _frames(one: Recording) -> tuple[Array, int]:
    """Return the frames of a recording, float32 [frames, channels], and its rate."""
    with open(one.path, "rb") as stream:
        first = stream.read(12)
        if not first:
            raise DataError(f"{one}: an empty file; replace it")
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
        raise DataError(f"{one}: no sound file (it begins with {first[:8]!r}); replace it")
    with extra(f"{one.path.suffix.lower()} ({one.path.name})", "audio"):
        import soundfile
    try:
        with stage("decode"), soundfile.SoundFile(one.path) as file:
            known = file.frames < 1 << 62  # libsndfile's word for a stream whose length is not known
            start, stop = _part(one, file.frames if known else None, file.samplerate)
            _refuse_long(one, 0 if stop is None else stop - start, file.channels)
            found = _read_part(file, start, stop, one)
            if known or stop is not None:
                _refuse_cut(one, len(found), stop - start, file.samplerate)
            return found, file.samplerate
    except soundfile.LibsndfileError as error:
        raise DataError(f"{one}: damaged, cut short, or no sound file ({reason_of(error)}); replace it") from error


_CONTAINERS = (b"RIFF", b"RIFX", b"RF64")
_BEGINNINGS = (*_CONTAINERS, b"fLaC", b"OggS", b"ID3", b".snd", b"dns.", b"riff", b"caff")


def _is_meant(first: bytes, ending: str) -> bool:
    """Say whether a file begins as one of the formats that are read here; libsndfile would try twenty others too."""
    if ending in (".wav", ".wave"):
        return first[:4] in _CONTAINERS
    aiff = first[:4] == b"FORM" and first[8:12] in (b"AIFF", b"AIFC")
    mpeg = len(first) > 1 and first[0] == 0xFF and first[1] >= 0xE0  # a frame of MP3 without a tag before it
    return aiff or mpeg or first.startswith(_BEGINNINGS)


_BLOCK = 1 << 20
"""Frames that are read at a time where their number is not known."""


def _read_part(file: Any, start: int, stop: int | None, one: Recording) -> Array:
    if start:  # in a FLAC that was cut short seeking fails in other words
        file.seek(start)
    if stop is not None:
        return file.read(stop - start, dtype="float32", always_2d=True)  # type: ignore[no-any-return]
    blocks, frames = list[Array](), 0  # nobody knows how many will come: a stream that was written as it was heard
    while not blocks or len(blocks[-1]):
        blocks.append(file.read(_BLOCK, dtype="float32", always_2d=True))
        frames += len(blocks[-1])
        _refuse_long(one, frames, file.channels)
    return np.concatenate(blocks)


def _refuse_long(one: Recording, frames: int, channels: int = 1) -> None:
    if frames * channels > MOST_VALUES:
        raise DataError(
            f"{one}: {frames * channels} samples, and {MOST_VALUES} are read at once; list its parts by offset and "
            "duration, or correct its head"
        )


def _refuse_cut(one: Recording, found: int, declared: int, rate: int) -> None:
    if found < declared:
        raise DataError(
            f"{one}: cut short: its head says {declared / rate:.2f} s and {found / rate:.2f} s are there; copy it again"
        )


def _part(one: Recording, frames: int | None, rate: int) -> tuple[int, Any]:
    """Return the first frame of a recording's part and the one behind its last."""
    if not all(abs(value) <= MOST_SECONDS for value in (one.start, one.seconds or 0.0)):
        raise DataError(f"{one}: {one.start:g} s and {one.seconds} s are no part of a recording; correct them")
    start = round(one.start * rate)
    stop = frames if one.seconds is None else start + round(one.seconds * rate)
    if frames is None:
        return start, stop
    if stop is None or abs(stop - frames) <= SLACK * rate:
        stop = frames
    if start > stop or stop > frames or start < 0 or (start == stop and frames):
        end = "the end" if one.seconds is None else f"{one.start + one.seconds:g} s"
        raise DataError(
            f"{one}: {one.start:g} s to {end} is listed, and {one.path.name} is {frames / rate:.2f} s long; correct it"
        )
    return start, stop


def _mono(frames: Array, one: Recording) -> Array:
    if frames.shape[1] == 1:
        return frames[:, 0]
    _tell(f"recordings of {frames.shape[1]} channels are mixed down to the mean of them", one)
    mean: Array = frames.mean(axis=1, dtype=np.float64).astype(np.float32)
    return mean


def _refuse_unusable(samples: Array, one: Recording) -> None:
    if not len(samples):
        raise DataError(f"{one}: holds no samples; replace it")
    peak = float(np.abs(samples).max())
    if not np.isfinite(peak):
        lost = int((~np.isfinite(samples)).sum())
        raise DataError(f"{one}: {lost} of {len(samples)} samples are NaN or infinite; replace it")
    if peak > LOUDEST:
        raise DataError(f"{one}: its floats go up to {peak:g}, and sound is in -1..1; divide it by its full scale")
    if samples.min() == samples.max() and (len(samples) > 1 or not peak):
        warnings.warn(f"{one}: all samples are {samples[0]:g}: silence", stacklevel=2)


def _tell(what: str, one: Recording) -> None:
    """Say something of recordings once in a run, with the first that it is so of."""
    if (what,) not in _told:
        _told.add((what,))
        warnings.warn(f"{what}, the first: {one}", stacklevel=2)
