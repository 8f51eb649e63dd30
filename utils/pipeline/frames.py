"""Clips and cameras in the scripts: their data set, and the video of the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import ConfigError, usable_cores
from tecoinfer_modelzoo.text import printable
from utils.datasets.base import Dataset
from utils.tasks.base import Task
from utils.tasks.options import DATA, Options

if TYPE_CHECKING:
    from PIL import Image

    from utils.datasets.image.frames import FrameDataset
    from utils.video.writer import VideoWriter


def load_frames(task: Task, path: Path) -> FrameDataset:
    """Return the frames of a clip or a camera as samples of a task; ``single`` takes the first batch.

    Raises DataError or ConfigError if the source cannot be read, or has none of the frames of ``--frames``.
    """
    from utils.datasets.image.frames import FrameDataset

    opt = task.options
    first = opt.batch_size if opt.script == "single" else None
    found = FrameDataset.of(path, lambda image: _one(task, image), opt.frames or slice(None), first=first)
    found.reader.selected = found.places
    # as many as the workers are ahead, as threads take frames out of order and answers are drawn on them later
    found.reader.keep((2 + (usable_cores() if opt.workers is None else opt.workers)) * opt.batch_size)
    return found


def _one(task: Task, image: Path) -> Dataset:
    """Return one frame as a data set of the task."""
    return task.load({DATA: image})


class FrameAnswers:
    """The answers of a run over frames: their times, the speed, and the video of ``--save``.

    ``frames``: of the run; ``None`` if its samples are others: then nothing is added.
    """

    def __init__(self, frames: FrameDataset | None = None, opt: Options | None = None) -> None:
        self.frames, self._opt = frames, opt
        self.files = frames is None or opt is None or opt.save_frames
        self.written: Path | None = None
        self._speed: dict[str, float] = {}
        self._writer: VideoWriter | None = None
        self._number, self._start = 0, time.perf_counter()

    def __bool__(self) -> bool:
        """Return whether the samples are frames."""
        return self.frames is not None

    @classmethod
    def of(cls, dataset: Dataset, opt: Options) -> FrameAnswers:
        """Return those of a run over a data set."""
        from utils.datasets.image.frames import FrameDataset

        return cls(dataset if isinstance(dataset, FrameDataset) else None, opt)

    def entry(self, name: str) -> dict[str, Any]:
        """Return the fields of an answer in the JSON: number of the frame, and its time in seconds."""
        if self.frames is None:
            return {}
        reader = self.frames.reader
        self._number = self.frames.number_of(name)
        return {"frame": self._number, "seconds": round(float(reader.ticks(self._number) * reader.time_base), 6)}

    def about(self) -> dict[str, Any]:
        """Return the fields of the JSON: the source, its size, rate and number of frames, and the video written."""
        from utils.datasets.image.frames import LIVE_LIMIT

        if self.frames is None:
            return {}
        reader = self.frames.reader
        rate = None if reader.rate is None else round(float(reader.rate), 6)
        known = len(reader) if len(reader) < LIVE_LIMIT else None
        written = None if self.written is None else str(self.written)
        source = {"path": str(reader.path), "width": reader.size[0], "height": reader.size[1]}
        return {"video": {**source, "frames_per_second": rate, "frames": known, "written": written}}

    def figures(self, samples: int) -> Mapping[str, float]:
        """Return the speed of the run: frames per second of wall time, with decoding, drawing and writing."""
        if self.frames is not None and samples and not self._speed:  # the first time is that of the end of the run
            self._speed["frames/s"] = samples / (time.perf_counter() - self._start)
        return self._speed

    def lines(self) -> list[str]:
        """Return the line on the video written."""
        return [] if self.written is None else [f"written: {printable(str(self.written), keep='')}"]

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let the answer that is saved in the block be the next frame of the video.

        Raises ConfigError if the video cannot be written.
        """
        if self.frames is None or self._opt is None or self._opt.save is None:
            yield
            return
        from utils.draw import drawing_into

        with drawing_into(partial(self._add, self.frames, self._opt.save), files=self.files):
            yield

    def _add(self, frames: FrameDataset, folder: Path, drawn: Image.Image, lines: list[str]) -> None:
        from utils.draw import answer_on_frame
        from utils.video.writer import VideoWriter, answers_file, comment_of

        reader = frames.reader
        image = answer_on_frame(drawn, lines, reader.size)
        if self._writer is None:
            rate = None if reader.rate is None else reader.rate / frames.places.step
            file = answers_file(folder, reader.path)
            self._writer = VideoWriter(file, image.size, rate, reader.time_base, comment_of(reader.path))
        try:
            self._writer.add(image, reader.ticks(self._number))
        except ConfigError:
            self._writer = None
            raise

    def close(self) -> None:
        """Finish the video. Raises ConfigError if it cannot be written."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self.written = writer.close()
