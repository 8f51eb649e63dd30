"""Base class of the writers of records files, and a complete file, put in place together with its JSON result."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array
from tecoinfer_modelzoo.files import hash_files, same_access
from utils.datasets.base import Batch, Numbers
from utils.metrics.base import Records
from utils.pipeline.resume.locks import open_locked, release
from utils.pipeline.resume.records.names import remove_other_kind, unwritable

_CHUNK = 2**14
"""Bytes of a file that are hashed at once, to save memory."""


@dataclass(slots=True)
class Kept:
    """Records on the disk.

    Attributes:
        path: the final file. sha256: of its content.
        waiting: the temporary file until :meth:`place`; ``None`` afterwards.
        parts: files that it was merged from, which :meth:`place` removes. lost: the records were discarded.
    """

    path: Path
    sha256: str
    waiting: Path | None = None
    parts: tuple[Path, ...] = ()
    lost: bool = False
    _lock: int = -1

    def place(self) -> None:
        """Put the file in place; raise ConfigError if it cannot be written. A second call has no effect."""
        if self.waiting is None:
            return
        try:
            same_access(self.path, self.waiting)
            self.waiting.replace(self.path)
            self.waiting = None
            remove_other_kind(self.path)
            for part in self.parts:
                part.unlink()
        except OSError as error:
            raise unwritable(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        """Delete the temporary file; a file that is in place stays."""
        if self.waiting is not None:
            with suppress(OSError):
                self.waiting.unlink(missing_ok=True)
            self.waiting, self.lost = None, True
        handle, self._lock = self._lock, -1
        if handle >= 0:
            release(handle)


class RecordsFile(ABC):
    """A records file that is written step by step, in the order of the samples, and appears when it is complete.

    A context manager: its end completes the file, an exception discards it. A killed run leaves ``.<name>.part``, which
    the next run overwrites. Equal samples and records give equal bytes.

    Args:
        path: the file; an older file stays until the new one is complete; a file of the other kind is removed then.
        metric_name: name of the metric.
        rank, size: the part of the data set (:func:`utils.datasets.sharding.shard`): index ``rank + i * size``.
        numbers: index of each sample instead, as :attr:`utils.datasets.base.Dataset.numbers` has it.

    Raises ConfigError: the file cannot be written, or another run writes it.
    """

    _mode: ClassVar[dict[str, Any]]

    def __init__(
        self, path: Path, metric_name: str, *, rank: int = 0, size: int = 1, numbers: Numbers | None = None
    ) -> None:
        self.path, self.metric_name = path, metric_name
        self._part = path.with_name(f".{path.name}.part")
        self._rank, self._size, self._numbers = rank, size, numbers
        try:
            self._handle = open_locked(self._part, create=True)
            os.ftruncate(self._handle, 0)
        except OSError as error:
            raise unwritable(path, error) from error
        self._file = os.fdopen(self._handle, closefd=False, **self._mode)

    def _positions(self, stop: int, start: int = 0) -> Numbers:
        """Return the index in the whole data set of samples ``start`` to ``stop`` of this part."""
        if self._numbers is not None:
            return self._numbers[start:stop]
        return self._rank + self._size * np.arange(start, stop, dtype=np.int64)

    @abstractmethod
    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Take in one step.

        Args:
            batch: the whole batch of the data set, with the samples that failed.
            record: return value of the metric's ``update`` for the good samples; ``None`` if no sample is good.
            good: positions in the batch of the good samples; ``None``: all (without a record: none).

        Raises InputError: the record does not fit the good samples; ConfigError: the file cannot be written, as on a
        full disk.
        """

    @abstractmethod
    def _finish(self) -> None:
        """Write the rest of the file."""

    def close(self) -> None:
        """Complete the file and put it in place; raise ConfigError if it cannot be written.

        A second call, or one after :meth:`discard`, has no effect.
        """
        if self._handle >= 0:
            self.complete().place()

    def complete(self) -> Kept:
        """Complete the file, which :meth:`Kept.place` puts in place; raise ConfigError if it cannot be written."""
        try:
            self._finish()
            self._file.close()  # flushes; the descriptor stays open with the lock
            os.fsync(self._handle)
            handle, self._handle = self._handle, -1
            return Kept(self.path, hash_files(self._part, chunk=_CHUNK), self._part, _lock=handle)
        except OSError as error:
            self.discard()
            raise unwritable(self.path, error) from error

    def discard(self) -> None:
        """Delete the unfinished file; an older file stays."""
        if self._handle < 0:
            return
        with suppress(OSError):  # for example a full disk
            self._file.close()
        self._part.unlink(missing_ok=True)
        handle, self._handle = self._handle, -1
        release(handle)

    def __enter__(self) -> RecordsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
