"""Trials: pairs of recordings with whether they are of the same speaker, from lists, folders or given speakers."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import check_regular, size_and_time
from utils.datasets.audio.recordings import load_sounds
from utils.datasets.base import Batch, Dataset, Rejected
from utils.datasets.folders import walk
from utils.datasets.image.face_pairs import MOST_PAIRS, NO_FOLD, Truth, balanced
from utils.preprocess.audio.reading import NOT_SOUND, Recording, is_sound, read_sound
from utils.preprocess.audio.wav import is_wav, read_head

SESSION = "__"
"""In ``NAME__SESSION=FOLDER``, the separator between a speaker and one of the speaker's folders."""


class Trial(NamedTuple):
    """Two recordings to compare."""

    first: Recording
    second: Recording


class Voices(NamedTuple):
    """Recordings and their speakers.

    Attributes:
        recordings: R of them.
        speakers: int32 [R], indices into ``names``; ``None`` if unknown.
        names: of the speakers.
        groups: int32 [R], the groups to draw from: a speaker, or one of a speaker's folders.
        rejected: entries that cannot be used.
        root: the folder that paths in reports and in the fingerprint are relative to.
    """

    recordings: list[Recording]
    speakers: Array | None
    names: list[str]
    groups: Array
    rejected: list[Rejected]
    root: Path


class Trials(Dataset):
    """Pairs of recordings, given by their indices, int32 [P, 2].

    The unit that the accuracy gate resamples is the speaker of the first recording.
    """

    def __init__(self, voices: Voices, pairs: Array) -> None:
        self.voices, self.pairs = voices, pairs
        self.rejected = voices.rejected
        self.has_units = voices.speakers is not None

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return trials, each with a :class:`~utils.datasets.image.face_pairs.Truth` if it is known."""
        voices, rows = self.voices, self.pairs[np.asarray(places, np.intp)].tolist()
        samples = [Trial(voices.recordings[a], voices.recordings[b]) for a, b in rows]
        names = [f"{self.name(one.first)} | {self.name(one.second)}" for one in samples]
        if voices.speakers is None:
            return Batch(samples, None, names)
        who = voices.speakers.tolist()
        truths = [Truth(who[a] == who[b], (voices.names[who[a]], voices.names[who[b]]), NO_FOLD) for a, b in rows]
        return Batch(samples, truths, names, [truth.people[0] for truth in truths])

    def name(self, recording: Recording) -> str:
        """Return the name of a recording in reports: its path relative to the root."""
        return str(recording).removeprefix(f"{self.voices.root}{os.sep}")

    def mixed(self) -> Trials:
        """Return the trials with same and different speakers alternating, for runs that are stopped early."""
        if self.voices.speakers is None or not len(self.pairs):
            return self
        who = self.voices.speakers[self.pairs]
        other = who[:, 0] != who[:, 1]
        rank = np.where(other, np.cumsum(other) / max(1, other.sum()), np.cumsum(~other) / max(1, (~other).sum()))
        return Trials(self.voices, self.pairs[np.argsort(rank, kind="stable")])

    def fingerprint(self) -> str:
        """Return a hash of the recordings' paths, parts, sizes and times (not their content), speakers and pairs."""
        digest, voices = hashlib.sha256(), self.voices
        for one in voices.recordings:
            entry = (os.path.relpath(one.path, voices.root), one.start, one.seconds, *size_and_time(one.path))
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
        who = None if voices.speakers is None else voices.speakers.tolist()
        digest.update(repr((voices.names, who)).encode("utf-8", "surrogatepass"))
        digest.update(self.pairs.astype("<i4").tobytes())
        return digest.hexdigest()

    def source_files(self) -> set[str]:
        """Return the folder of the recordings."""
        return {str(self.voices.root)}


def voices_of(path: Path) -> Voices:
    """Return the recordings of a folder or a list, with their speakers if stated.

    Takes a folder with a subfolder per speaker, with recordings at any depth (VoxCeleb's layout), or any list that
    :func:`~utils.datasets.audio.recordings.load_sounds` reads; a plain folder of recordings has no speakers. Raises
    DataError if the path has no recording.
    """
    sounds = load_sounds(path, target="speaker")
    root = path if path.is_dir() else path.parent
    if sounds.targets is None:
        group = np.zeros(len(sounds), np.int32)
        return Voices(list(sounds.samples), None, [], group, list(sounds.rejected), root)
    names = sorted({str(name) for name in sounds.targets})
    places = {name: place for place, name in enumerate(names)}
    who = np.array([places[str(name)] for name in sounds.targets], np.int32)
    return Voices(list(sounds.samples), who, names, who, list(sounds.rejected), root)


def voices_by_name(folders: Mapping[str, Path], leave_out: Sequence[str] = ()) -> Voices:
    """Return the recordings in folders, at any depth; keys are speakers: ``NAME`` or ``NAME__SESSION``.

    Paths relative to a folder that match a pattern (:mod:`fnmatch`) of ``leave_out`` are skipped. Raises DataError if a
    path is not a folder, or contains no recording.
    """
    found: list[Recording] = []
    who: list[int] = []
    groups: list[int] = []
    rejected: list[Rejected] = []
    names = list(dict.fromkeys(name.partition(SESSION)[0] for name in folders))
    for place, (name, folder) in enumerate(folders.items()):
        if not folder.is_dir():
            raise DataError(f"data path {name}={folder} is not a folder of recordings; check the path")
        files = sorted(Path(top, file) for top, inside in walk(folder) for file in inside if not file.startswith("."))
        paths = {file: file.relative_to(folder).as_posix() for file in files}
        files = [file for file in files if not any(fnmatchcase(paths[file], pattern) for pattern in leave_out)]
        own = [file for file in files if is_sound(file.name)]
        rejected += [Rejected(file, NOT_SOUND) for file in files if not is_sound(file.name)]
        if not own:
            raise DataError(f"data path {name}={folder} contains no recording; it needs sound files (.wav, .flac)")
        found += [Recording(file) for file in own]
        who += [names.index(name.partition(SESSION)[0])] * len(own)
        groups += [place] * len(own)
    root = Path(os.path.commonpath([folder.absolute() for folder in folders.values()]))
    return Voices(found, np.array(who, np.int32), names, np.array(groups, np.int32), rejected, root)


def drawn(voices: Voices, count: int, shortest: float, seed: int) -> Voices:
    """Return a random subset of recordings per group, and warn with the number of those that are too short.

    Args:
        count: recordings per group; 0: all.
        shortest: minimum length in seconds; 0: lengths are not read.

    Raises DataError if no recording is left.
    """
    chance = np.random.default_rng(seed)
    kept: list[int] = []
    rejected = list(voices.rejected)
    short = 0
    for group in np.unique(voices.groups).tolist():
        places = np.flatnonzero(voices.groups == group).tolist()
        if shortest > 0:
            lengths = {place: _length(voices.recordings[place], rejected) for place in places}
            long = [place for place in places if (lengths[place] or 0.0) >= shortest]
            short += sum(length is not None and length < shortest for length in lengths.values())
            places = long
        if count and len(places) > count:
            places = np.sort(chance.choice(places, count, replace=False)).tolist()
        kept += places
    if not kept:
        raise DataError(f"{voices.root}: no recording has {shortest:g} s; use a smaller --shortest")
    if short:
        words = f"{short} of {len(voices.recordings)} recordings are shorter than --shortest {shortest:g} s: skipped"
        warnings.warn(words, stacklevel=2)
    return voices._replace(
        recordings=[voices.recordings[place] for place in kept],
        speakers=None if voices.speakers is None else voices.speakers[kept],
        groups=voices.groups[kept],
        rejected=rejected,
    )


def _length(recording: Recording, rejected: list[Rejected]) -> float | None:
    """Return seconds, for a WAV from its header; ``None`` for a recording that cannot be read, which is rejected."""
    if recording.seconds is not None:
        return recording.seconds
    try:
        try:
            check_regular(recording.path)
            with recording.path.open("rb") as stream:
                head = read_head(stream, str(recording)) if is_wav(stream.read(12)) else None
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror or error}); check the path") from error
        return read_sound(recording).seconds if head is None else head.frames / head.rate - recording.start
    except DataError as error:
        rejected.append(Rejected(recording.path, str(error).removeprefix(f"{recording}: ")))
        return None


def paired(voices: Voices, rule: str, seed: int) -> Trials:
    """Return pairs of recordings.

    ``all``: every pair. ``balanced``: all pairs of one speaker (at most 100 pairs each, drawn by the seed), and as
    many of two speakers. Without known speakers, ``all``. Raises DataError if there are fewer than two recordings, or
    only one speaker, and ConfigError if there would be too many pairs.
    """
    count = len(voices.recordings)
    if count < 2:
        raise DataError(f"{voices.root}: {count} recordings are too few for a pair; pass at least two")
    if voices.speakers is None or rule == "all":
        number = count * (count - 1) // 2
        if number > MOST_PAIRS:
            advice = "--of_each, --pairs balanced" if voices.speakers is not None else "a list of pairs"
            raise ConfigError(f"{voices.root}: {count} recordings make {number} pairs; use {advice}")
        pairs = np.stack(np.triu_indices(count, 1), axis=1).astype(np.int32)
    else:
        present = np.unique(voices.speakers)
        pairs, _ = balanced(voices.speakers, [present], np.random.default_rng(seed))
    if voices.speakers is not None and len(np.unique(voices.speakers)) < 2:
        raise DataError(f"{voices.root}: only one speaker ({voices.names[0]}); pass recordings of several")
    return Trials(voices, pairs)
