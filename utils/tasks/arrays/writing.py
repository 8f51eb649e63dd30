"""The outputs of all samples in one ``.npz`` file: ``--save_predictions``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine import Array, ConfigError
from tecoinfer_modelzoo.files import write_file
from utils.arrays import npz_bytes
from utils.datasets.base import Batch


class OutputFile:
    """Writer of an entry per output, N x ..., and ``sample_names``, in the order of the samples."""

    def __init__(self, path: Path) -> None:
        self._path, self._names, self._rows = path, list[str](), list[Mapping[str, Array]]()

    def see(self, batch: Batch, predictions: Sequence[Mapping[str, Array]]) -> None:
        """Add a batch."""
        self._names += batch.names
        self._rows += predictions

    def close(self) -> None:
        """Write the file. Raises ConfigError if outputs have different shapes, or it cannot be written."""
        arrays = {}
        for name in self._rows[0] if self._rows else ():
            column = [row[name] for row in self._rows]
            if len({array.shape for array in column}) > 1:
                raise ConfigError(
                    f"--save_predictions {self._path}: output {name!r} has samples of different shapes; run those of "
                    "each shape separately"
                )
            arrays[name] = np.stack(column)
        names = np.array(self._names, dtype=np.str_)
        try:
            write_file(self._path, npz_bytes({"sample_names": names, **arrays}))
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"--save_predictions: {self._path} cannot be written ({why})") from error
