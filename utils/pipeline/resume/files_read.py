"""Record the files of a project that the code of a run opens: a task may read a table that no flag names.

Files that a script opened before its run count too (:mod:`utils.opened`). Files opened by native libraries, models and
tokenizers, are not seen; flags name these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from importlib.util import source_from_cache
from pathlib import Path

from tecoinfer_modelzoo.cache import cache_folder
from utils import opened
from utils.code_files import is_installed
from utils.identity import Part, part_of

MOST_FILES = 2000
"""Largest number of recorded files; a run that opens more reads data outside the data path."""

_LEFT_OUT = (
    *(".engine", ".tecoengine", ".engine.json", ".onnx"),
    *(".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".wav", ".flac", ".ogg", ".mp3"),
)
"""Endings of models and saved engines, and of samples, which are recorded elsewhere."""


class FilesRead:
    """The files that are opened for reading below some folders, from construction to :meth:`close`.

    Args:
        below: the folders. known: paths to ignore, with everything below them: recorded elsewhere, or outputs.
        script: this is a script's own process, so that files it opened before count.
    """

    def __init__(self, below: Iterable[Path], known: Iterable[Path], *, script: bool) -> None:
        self._below = [os.path.realpath(one) for one in below]
        self._known = [os.path.realpath(one) for one in known]
        own = cache_folder("")  # cached files are not inputs of the run
        self._known += [] if own is None else [os.path.realpath(own)]
        self._since = time.time_ns()
        self._seen = set[tuple[int, str]]()
        self._now = set[str]()
        before = opened.before_first_run()
        self._before = before if script else set[str]()
        opened.listen(self._now)

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Ignore files at these places, and everything below them."""
        self._known += [os.path.realpath(one.expanduser()) for one in paths]

    def close(self) -> None:
        """Stop recording."""
        opened.leave(self._now)

    def new(self) -> dict[str, Part]:
        """Return the files opened since the last call, by their real paths."""
        return self._of(self._before, opened.begun) | self._of(self._now, self._since)

    def _of(self, names: set[str], since: int) -> dict[str, Part]:
        """Empty a set of names, and return those of relevant files that were not changed after ``since``."""
        found = dict[str, Part]()
        while names and len(self._seen) < MOST_FILES:
            path = os.path.realpath(_source_of(names.pop()))
            if (since, path) not in self._seen and self._counts(path):
                self._seen.add((since, path))
                part = part_of(Path(path))
                if part.stamp is not None and part.stamp.ctime_ns < since:  # otherwise the run wrote it itself
                    found[path] = part
        return found

    def _counts(self, path: str) -> bool:
        if path.endswith(_LEFT_OUT) or not any(_is_below(path, place) for place in self._below):
            return False
        if any(_is_below(path, place) for place in self._known) or is_installed(Path(path)):
            return False
        return os.path.isfile(path)


def _is_below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)


def _source_of(path: str) -> str:
    """Return the source file of cached bytecode, which may be opened without its source."""
    if path.endswith(".pyc"):
        try:
            return source_from_cache(path)
        except (ValueError, NotImplementedError):
            return path
    return path
