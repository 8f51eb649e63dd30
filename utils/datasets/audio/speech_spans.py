"""Recordings with their spans of speech: a JSON list with ``segments``, or NIST's RTTM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.audio.lists import is_time, text_lines
from utils.datasets.audio.recordings import hashed, load_sounds
from utils.datasets.base import ListDataset, Rejected
from utils.preprocess.audio.reading import MOST_SECONDS, Recording

Spans = tuple[tuple[float, float], ...]
"""Start and end times in seconds."""


class Spoken(NamedTuple):
    """A recording and its spans of speech."""

    recording: Recording
    spans: Spans


def load_spoken(paths: Mapping[str, Path], units: str = "recording") -> ListDataset:
    """Load recordings with their spans of speech. Raises DataError if the paths have no usable data.

    Args:
        paths: as :func:`.load_sounds` takes them, with a JSON list that has ``segments``, a list of [start, end] in
            seconds, for each; or ``{"audio": folder, "rttm": file}``: its files are recordings of the folder, by name
            without ending. A recording without a line in it has no speech.
        units: one of :data:`~utils.datasets.audio.recordings.UNITS`.

    Samples are :class:`Spoken` and targets their spans; without any ``segments``, samples are :class:`Recording` and
    targets are ``None``.
    """
    if "rttm" in paths:
        return _by_rttm(paths)
    sounds = load_sounds(paths, target="segments", units=units)
    if sounds.targets is None:
        return sounds
    kept, rejected = list[tuple[Spoken, int]](), list(sounds.rejected)
    for place, (recording, found) in enumerate(zip(sounds.samples, sounds.targets, strict=True)):
        spans = _spans(found)
        if isinstance(spans, str):
            rejected.append(Rejected(Path(str(recording)), spans))
        else:
            kept.append((Spoken(recording, spans), place))
    own = None if sounds.units is None else [sounds.units[place] for _, place in kept]
    return _Spoken([spoken for spoken, _ in kept], sounds.files[0], rejected, own)


class _Spoken(ListDataset):
    """Recordings with spans; the fingerprint covers paths, sizes and times of the files."""

    def __init__(
        self, samples: Sequence[Spoken], source: Path, rejected: Sequence[Rejected], units: Sequence[str] | None
    ) -> None:
        if not samples:
            first = f", the first: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
            raise DataError(f"{source}: no recording can be used{first}; correct the list")
        super().__init__(
            samples,
            [spoken.spans for spoken in samples],
            names=[str(spoken.recording) for spoken in samples],
            units=units,
            files=[source],
            rejected=rejected,
        )

    def fingerprint(self) -> str:
        """Return a hash of paths, sizes, times and spans."""
        own: Sequence[str | None] = self.units or [None] * len(self)
        rows = [(one.recording, one.spans, unit) for one, unit in zip(self.samples, own, strict=True)]
        return hashed(rows, self.files[0])


def _spans(found: Any) -> Spans | str:
    if not isinstance(found, list):
        return f"segments {shown_value(found)} must be a list of [start, end] in seconds"
    spans = []
    for one in found:
        if isinstance(one, dict):
            one = [one.get("start"), one.get("end")]
        if not isinstance(one, list) or len(one) != 2 or not all(is_time(value) for value in one) or one[0] >= one[1]:
            return f"segment {shown_value(one)} must be [start, end] in seconds"
        spans.append((float(one[0]), float(one[1])))
    return tuple(sorted(spans))


def _by_rttm(paths: Mapping[str, Path]) -> ListDataset:
    """Return the recordings of a folder with the spans of an RTTM file (NIST, Rich Transcription 2009)."""
    if set(paths) != {"rttm", "audio"}:
        raise ConfigError("pass labels in RTTM as --data_path audio=FOLDER rttm=FILE")
    found: dict[str, list[tuple[float, float]]] = {}
    file = paths["rttm"]
    for number, line in text_lines(file):
        fields = line.split()
        if fields[0] != "SPEAKER":
            continue
        try:
            start, seconds = float(fields[3]), float(fields[4])
        except (IndexError, ValueError):
            start, seconds = math.nan, math.nan
        if not is_time(start) or not 0 < seconds <= MOST_SECONDS:
            raise DataError(
                f"{file}:{number}: {line.strip()[:80]!r} is not 'SPEAKER file channel start seconds ...'; correct it"
            )
        found.setdefault(fields[1], []).append((start, start + seconds))
    sounds = load_sounds(paths["audio"], target=None)
    stems = {Path(one.path).stem for one in sounds.samples}
    lost = [name for name in found if name not in stems]
    rejected = [*sounds.rejected, *(Rejected(Path(one), f"in {file.name}, not in {paths['audio']}") for one in lost)]
    samples = [Spoken(one, tuple(sorted(found.get(one.path.stem, [])))) for one in sounds.samples]
    return _Spoken(samples, file, rejected, None)
