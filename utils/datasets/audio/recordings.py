"""Data sets of recordings: a folder, a file, or one of the usual lists, with what is said and by whom.

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
from utils.datasets.base import ListDataset, Rejected
from utils.preprocess.audio.reading import NOT_SOUND, Recording, Sound, is_sound

__all__ = ["Recording", "Sound", "Sounds", "load_sounds"]

UNITS = ("recording", "speaker", "file")
"""What is independent of the rest: every recording, all of one person, or all parts of one file."""


class Sounds(ListDataset):
    """Recordings, with what is known of each.

    Args:
        rows: the recordings and, by name, what a list says of each: ``text``, ``label``, ``speaker`` and whatever else.
        source: the list or folder they come from.
        rejected: what cannot be a sample.
        target: the name of what is right for a recording; ``None``, or a name that no recording has: it is not known.
            Where some have it, the others are in ``rejected``.
        units: one of :data:`UNITS`.

    Attributes:
        fields: per recording all that is known of it, by name.

    Raises:
        ConfigError: units by speaker, and a recording has none.
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
            reason = f"no {target!r} is given, and other recordings have one"
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
        """Return a hash of paths below the source's folder, sizes and times, parts, targets and units.

        Recordings are not read: a change that keeps size and time is not seen.
        """
        units: Sequence[str | None] = self.units or [None] * len(self)
        return hashed(list(zip(self.samples, self.targets or units, units, strict=True)), self.files[0])


def hashed(rows: Sequence[tuple[Recording, Any, str | None]], source: Path) -> str:
    """Return a hash of recordings, what is right for each, and units: by path below the source, size and time."""
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
        nobody = next((row.recording for row in rows if "speaker" not in row.fields), None)
        if nobody is not None:
            raise ConfigError(f"--units speaker: nobody says who speaks in {nobody}; use --units recording")
        return [str(row.fields["speaker"]) for row in rows]
    return None


def load_sounds(
    paths: Mapping[str, Path] | Path, *, target: str | None = "text", units: str = "recording", split: str | None = None
) -> Sounds:
    """Load recordings; nothing of their sound is read.

    Args:
        paths: ``{"data": path}`` or the path: a recording, a list, or a folder; or ``{"manifest": list, "audio":
            folder}``, where the list's paths start from that folder.
        target: what is right for a recording: ``text``, ``label``, ``speaker``, or another name of a JSON list.
        units: one of :data:`UNITS`.
        split: of an AISHELL folder, the part to take (``test``); ``None``: all.

    These are known:

    - JSON lines (``.jsonl``, ``.json``), as NeMo's manifests: ``audio_filepath``, and where given ``offset`` and
      ``duration`` in seconds, ``text``, ``label``, ``speaker``, and anything else.
    - Kaldi: ``wav.scp``, with ``text``, ``utt2spk`` and ``segments`` beside it where they are. A pipe in it is refused:
      no command of a list is run.
    - LibriSpeech: ``*.trans.txt`` beside the recordings, at any depth.
    - AISHELL-1: ``transcript/*.txt`` beside ``wav/``; the blanks between words are left out.
    - a folder with a folder per label, or speaker, where that is the target; or a folder of recordings.

    A list's paths start from its folder or the one above, whichever has the first recording that is found, and must not
    leave it. What is listed and is not there, or is listed wrongly, is in ``rejected``.

    Raises:
        DataError: nothing usable is there; the text says what would be.
        ConfigError: unknown names of paths.
    """
    named = {"data": paths} if isinstance(paths, Path) else dict(paths)
    for path in named.values():
        if not path.exists():
            raise DataError(f"data path {path} does not exist; check the path")
    if set(named) == {"manifest", "audio"}:
        found = listed_in(named["manifest"], [named["audio"]])
    elif set(named) != {"data"}:
        raise ConfigError("recordings are given by --data_path PATH, or by --data_path manifest=FILE audio=FOLDER")
    else:
        found = _of_path(named["data"], target, split)
    sounds = Sounds(found.rows, found.source, found.rejected, target, units)
    if not len(sounds):
        where, reason = sounds.rejected[0] if sounds.rejected else (found.source, "nothing is listed")
        raise DataError(
            f"{found.source}: none of {len(sounds.rejected)} recordings can be used, the first is {where}: {reason}; "
            "check the data, or say where the recordings are by --data_path manifest=FILE audio=FOLDER"
        )
    return sounds


def _of_path(path: Path, target: str | None, split: str | None) -> Listed:
    if path.is_dir():
        return of_folder(path, target, split)
    if path.name.endswith(LISTS):
        return listed_in(path, [path.parent, path.parent.parent])
    if is_sound(path.name):
        return Listed([Row(Recording(path), {})], [], path)
    raise DataError(f"{path}: {NOT_SOUND}; give a recording, a folder, or a list ({' '.join(LISTS)})")
