"""What both kinds of records files share: how one is written."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine import Array
from tecoinfer_modelzoo.files import hash_files
from utils.datasets.base import Batch
from utils.metrics.base import Records
from utils.pipeline.resume.locks import open_locked, release
from utils.pipeline.resume.records.kept import Kept
from utils.pipeline.resume.records.names import unwritable

if TYPE_CHECKING:
    from typing_extensions import Self

_CHUNK = 2**14
"""Bytes of a file that are hashed at once: a long run needs little memory."""


class RecordsFile(ABC):
    """A records file that is written step by step, in the order of the samples, and appears when it is complete.

    A context manager: leaving it completes the file, leaving it by an exception writes none. What a killed run leaves
    behind, ``.<name>.part``, is overwritten by the next one. The same samples and records give the same bytes.

    Args:
        path: the file; an older one stays until the new one is complete, which also removes one of the other kind.
        metric_name: what the records are of.
        rank, size: which part of the data set this is (:func:`utils.datasets.sharding.shard`): sample ``i`` has the
            index ``rank + i * size``.

    Raises:
        ConfigError: the file cannot be written, or another run writes it.
    """

    _mode: ClassVar[dict[str, Any]]

    def __init__(self, path: Path, metric_name: str, *, rank: int = 0, size: int = 1) -> None:
        self.path, self.metric_name = path, metric_name
        self._part = path.with_name(f".{path.name}.part")
        self._index, self._stride = rank, size
        try:
            self._handle = open_locked(self._part, create=True)
            os.ftruncate(self._handle, 0)
        except OSError as error:
            raise unwritable(path, error) from error
        self._file = os.fdopen(self._handle, closefd=False, **self._mode)

    @abstractmethod
    def write(self, batch: Batch, record: Array | Records | None, good: Sequence[int] | None = None) -> None:
        """Take in one step.

        Args:
            batch: the whole batch as the data set gave it, with the samples that failed.
            record: what the metric's ``update`` returned for the samples that made it; ``None`` where none did.
            good: positions in the batch of the samples that made it; ``None`` where all did (none, without a record).

        Raises:
            InputError: the record does not fit the good samples.
            ConfigError: the file cannot be written, as on a full disk.
        """

    @abstractmethod
    def _finish(self) -> None:
        """Write what is still to be written before the file is complete."""

    def close(self) -> None:
        """Complete the file, and let it appear; a second call, or one after :meth:`discard`, does nothing.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._handle >= 0:
            self.complete().place()

    def complete(self) -> Kept:
        """Complete the file, which appears by :meth:`Kept.place`, together with what names it.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            self._finish()
            self._file.close()  # flushes; the descriptor stays, and with it the lock
            os.fsync(self._handle)
            handle, self._handle = self._handle, -1
            return Kept(self.path, hash_files(self._part, chunk=_CHUNK), self._part, _lock=handle)
        except OSError as error:
            self.discard()
            raise unwritable(self.path, error) from error

    def discard(self) -> None:
        """Write no file after all; an older one stays."""
        if self._handle < 0:
            return
        with suppress(OSError):  # a full disk, most likely the reason why there is nothing to keep
            self._file.close()
        self._part.unlink(missing_ok=True)
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _release(self) -> None:
        handle, self._handle = self._handle, -1
        release(handle)
