"""Data sets of recordings: a folder, a file, or a list in a usual format, with transcripts, labels or speakers.

Recordings are read later, by ``prepare`` (:func:`utils.preprocess.audio.reading.read_sound`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.audio.lists import LISTS, Listed, Row, listed_in, of_folder
from utils.datasets.base import ListDataset, Rejected, check_exists
from utils.preprocess.audio.reading import NOT_SOUND, Recording, Sound, is_sound

__all__ = ["Recording", "Sound", "Sounds", "load_sounds"]

UNITS = ("recording", "speaker", "file")
"""Values of ``units``: the independent unit is a recording, all recordings of a speaker, or all parts of a file."""


class Sounds(ListDataset):
    """Recordings with their known values. Raises ConfigError if units are speakers, and a recording has none.

    Args:
        rows: the recordings with the values of the list by name, such as ``text``, ``label`` and ``speaker``.
        source: the list or folder they come from.
        target: name of the value to use as target; ``None``, or a name that no recording has: no targets. If only some
            recordings have it, the others are in ``rejected``.
        units: one of :data:`UNITS`.

    Attributes:
        fields: per recording its values by name.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        source: Path,
        rejected: Sequence[Rejected] = (),
        target: str | None = None,
        units: str = "recording",
    ) -> None:
        kept, lost, known = list(rows), list(rejected), any(target in row.fields for row in rows)
        if known:
            kept = [row for row in rows if target in row.fields]
            reason = f"has no {target!r}, but other recordings have one"
            lost += [Rejected(Path(str(row.recording)), reason) for row in rows if target not in row.fields]
        samples = [row.recording for row in kept]
        super().__init__(
            samples,
            [row.fields[target] for row in kept] if known and target is not None else None,
            names=[str(recording) for recording in samples],
            units=_units(kept, units),
            files=[source],
            rejected=lost,
        )
        self.fields: list[Mapping[str, Any]] = [row.fields for row in kept]

    def fingerprint(self) -> str:
        """Return a hash of relative paths, sizes, times, parts, targets and units; recordings are not read."""
        units: Sequence[str | None] = self.units or [None] * len(self)
        return hashed(list(zip(self.samples, self.targets or units, units, strict=True)), self.files[0])


def hashed(rows: Sequence[tuple[Recording, Any, str | None]], source: Path) -> str:
    """Return a hash of recordings (path relative to the source, size and time), targets and units."""
    root = source if source.is_dir() else source.parent
    digest, states = hashlib.sha256(), dict[Path, tuple[int, int]]()
    for one, target, unit in rows:
        if one.path not in states:
            states[one.path] = size_and_time(one.path)
        own = None if unit is None else os.path.relpath(unit, root) if os.path.isabs(unit) else unit
        place = os.path.relpath(one.path, root)
        digest.update(
            repr((place, states[one.path], one.start, one.seconds, target, own)).encode("utf-8", "surrogatepass")
        )
    return digest.hexdigest()


def _units(rows: Sequence[Row], units: str) -> list[str] | None:
    if units == "file":
        return [str(row.recording.path) for row in rows]
    if units == "speaker":
        unnamed = next((row.recording for row in rows if "speaker" not in row.fields), None)
        if unnamed is not None:
            raise ConfigError(f"--units speaker: {unnamed} has no speaker; use --units recording")
        return [str(row.fields["speaker"]) for row in rows]
    return None


def load_sounds(
    paths: Mapping[str, Path] | Path, *, target: str | None = "text", units: str = "recording", split: str | None = None
) -> Sounds:
    """Load a list or folder of recordings without reading any sound.

    Args:
        paths: ``{"data": path}`` or the path: a recording, a list, or a folder; or ``{"manifest": list, "audio":
            folder}``, where the list's paths are relative to that folder.
        target: the value to use as target: ``text``, ``label``, ``speaker``, or another key of a JSON list.
        units: one of :data:`UNITS`.
        split: part of an AISHELL folder (``test``); ``None``: all.

    Supported formats:

    - JSON lines (``.jsonl``, ``.json``), as NeMo's manifests: ``audio_filepath``, and optionally ``offset`` and
      ``duration`` in seconds, ``text``, ``label``, ``speaker``, and other keys.
    - Kaldi: ``wav.scp``, optionally with ``text``, ``utt2spk`` and ``segments`` next to it. Pipes in it are rejected:
      no command of a list is run.
    - LibriSpeech: ``*.trans.txt`` next to the recordings, at any depth.
    - AISHELL-1: ``transcript/*.txt`` next to ``wav/``; spaces between words are removed.
    - a folder with a subfolder per label or speaker, if that is the target; or a folder of recordings.

    A list's paths are relative to its folder or the parent of it, the first that has one of the files, and must not
    leave it. Missing files and invalid entries are in ``rejected``. Raises DataError, which names the expected content,
    if the paths have no usable data, and ConfigError if names of paths are unknown.
    """
    named = {"data": paths} if isinstance(paths, Path) else dict(paths)
    check_exists(*named.values())
    if set(named) == {"manifest", "audio"}:
        found = listed_in(named["manifest"], [named["audio"]])
    elif set(named) != {"data"}:
        raise ConfigError("pass recordings as --data_path PATH, or as --data_path manifest=FILE audio=FOLDER")
    else:
        found = _of_path(named["data"], target, split)
    sounds = Sounds(found.rows, found.source, found.rejected, target, units)
    if not len(sounds):
        where, reason = sounds.rejected[0] if sounds.rejected else (found.source, "the list is empty")
        raise DataError(
            f"{found.source}: none of {len(sounds.rejected)} recordings can be used, the first is {where}: {reason}; "
            "check the data, or set the folder of the recordings with --data_path manifest=FILE audio=FOLDER"
        )
    return sounds


def _of_path(path: Path, target: str | None, split: str | None) -> Listed:
    if path.is_dir():
        return of_folder(path, target, split)
    if path.name.endswith(LISTS):
        return listed_in(path, [path.parent, path.parent.parent])
    if is_sound(path.name):
        return Listed([Row(Recording(path), {})], [], path)
    raise DataError(f"{path}: {NOT_SOUND}; pass a recording, a folder, or a list ({' '.join(LISTS)})")
