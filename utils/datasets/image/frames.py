"""The frames of a clip or a camera as samples of any task that loads one image."""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import DataError, TecoInferError
from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.base import Batch, Dataset
from utils.video.names import FramePath
from utils.video.reader import FrameReader, reader_of

LIVE_LIMIT = 1 << 31
"""Number of frames that is taken for unlimited."""


def frame_range(text: str) -> slice:
    """Parse ``--frames``: a number, or ``START:STOP`` or ``START:STOP:STEP``, each of which may be left out."""
    found = re.fullmatch(r"(\d{1,9})|(\d{0,9}):(\d{0,9})(?::(\d{0,9}))?", text)
    if found is None or (found[4] is not None and found[4] and not int(found[4])):
        raise ArgumentTypeError(f"{text!r} must be a number, or START:STOP:STEP, such as 100:200, :500 or ::10")
    if found[1]:
        return slice(int(found[1]), int(found[1]) + 1)
    start, stop, step = (int(part) if part else None for part in found.groups()[1:])
    return slice(start, stop, step)


class FrameDataset(Dataset):
    """Frames of a source as samples in the form of a task. Frames are decoded when they are used.

    Args:
        reader: of the source.
        load: the task's function from the path of an image to a data set of one sample.
        places: numbers of the frames.

    Raises:
        DataError: no frame is selected, or the task cannot load one.
    """

    def __init__(self, reader: FrameReader, load: Callable[[Path], Dataset], places: range) -> None:
        self.reader, self.places, self._load = reader, places, load
        try:  # here, and not in the middle of a run
            self.notes = load(self._path(places[0])).notes
        except TecoInferError as error:
            raise DataError(f"{reader.path}: its frames cannot be the samples of this model ({error})") from error

    @classmethod
    def of(
        cls, source: Path, load: Callable[[Path], Dataset], chosen: slice, *, first: int | None = None
    ) -> FrameDataset:
        """Return the frames of ``--frames``, or the first ones of them.

        Raises ConfigError or DataError if the source cannot be read, or has none of the frames.
        """
        reader = reader_of(source)
        places = range(len(reader))[chosen][:first]
        if not places:
            last = len(reader) - 1
            raise DataError(f"--frames: {source} has the frames 0 to {last}, none of which is selected; choose others")
        return cls(reader, load, places)

    def _path(self, number: int) -> FramePath:
        return FramePath.of(self.reader.path, number)

    def __len__(self) -> int:
        return min(len(self.places), LIVE_LIMIT)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return frames as samples of the task, without targets; nothing is decoded."""
        paths = [self._path(self.places[place]) for place in places]
        samples = [self._load(path).batch(range(1)).samples[0] for path in paths]
        return Batch(samples, None, [str(path) for path in paths])

    def fingerprint(self) -> str:
        """Return a hash of name, size and time of the file, and of the numbers of the frames."""
        from hashlib import sha256  # loading OpenSSL costs start-up time

        path = self.reader.path
        return sha256(repr((path.name, size_and_time(path), self.places)).encode("utf-8", "surrogatepass")).hexdigest()

    def source_files(self) -> set[str]:
        """Return the clip."""
        return {str(self.reader.path)} if os.path.isfile(self.reader.path) else set()

    def number_of(self, name: str) -> int:
        """Return the number of a frame by the name of its sample."""
        return int(name.rpartition("#")[2])
