"""Conversion of the arrays of dumps to .npy files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engine import ConfigError, DataError
from engine.training import TrainingDump, as_numbers, open_training_dump
from tecoinfer_modelzoo.trees import below


def convert(source: Path, target: Path) -> Iterator[Path]:
    """Write the arrays of a dump, or of all dumps in a folder and its subfolders, to .npy files; yield the files.

    Raise ConfigError if there is no file or dump, DataError if a file cannot be read or written.
    """
    files = sorted(path for path in below(source) if path.is_file()) if source.is_dir() else [source]
    if not files:
        raise ConfigError(f"{source} contains no dump")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}; choose another -out") from error
    for file in files:
        with open_training_dump(file) as dump:
            yield from _converted(dump, target)


def _converted(dump: TrainingDump, target: Path) -> Iterator[Path]:
    several = len(dump.calls) > 1
    for call in dump.calls:
        held = dump.read(call)
        stem = f"{call.op}.{call.number}" if several else dump.path.name.removesuffix(".h5")
        for slot, tensors, arrays in (("input", call.inputs, held.inputs), ("output", call.outputs, held.outputs)):
            for k, (one, array) in enumerate(zip(tensors, arrays, strict=True)):
                file = target / f"{stem}.{slot}.{k}.npy"
                try:
                    np.save(file, as_numbers(array, one.dtype), allow_pickle=False)
                except OSError as error:
                    raise DataError(f"{file} cannot be written: {error.strerror}; choose another -out") from error
                yield file
