"""Vectors of a corpus in a folder, so that a run that goes on does not make them again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError


def kept_vectors(
    folder: Path | None, engine: Any, what: Sequence[Any], count: int, step: int, make: Callable[[int, int], Array]
) -> Array:
    """Return the vectors of ``count`` texts, N x D float32; made ``step`` at a time, and those that are kept, read.

    Args:
        folder: where parts are kept, a file for each; ``None``: nowhere. engine: of the model; its file, target and
            dtype are part of what decides whether a part is the same. what: the rest of that.
        count: texts. step: of a part. make: from the first and one behind the last text to a part.

    Raises:
        ConfigError: a part cannot be written.
    """
    key = "" if folder is None else _key(engine, what)
    parts = []
    for start in range(0, count, step):
        stop = min(start + step, count)
        file = None if folder is None else folder / f"{key}-{start}-{stop}.npy"
        part = _read(file, stop - start)
        if part is None:
            part = np.ascontiguousarray(make(start, stop), np.float32)
            if file is not None:
                _write(file, part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _key(engine: Any, what: Sequence[Any]) -> str:
    """Return 24 hex digits that change with whatever the vectors hang on."""
    spec, digest = engine.spec, sha256()
    digest.update(repr((engine.describe(), str(spec.pass_path), sorted(spec.dims.items()), *what)).encode())
    for path in (spec.ckpt, spec.pass_path):
        if path is not None and Path(path).is_file():
            with Path(path).open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()[:24]


def _read(file: Path | None, rows: int) -> Array | None:
    """Return a part; ``None`` where none is kept, or what is there is damaged."""
    if file is None or not file.is_file():
        return None
    try:
        found: Array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.ndim == 2 and len(found) == rows and found.dtype == np.float32 else None


def _write(file: Path, part: Array) -> None:
    """Write a part; another process sees it whole or not at all."""
    own = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with own.open("wb") as out:
            np.save(out, part, allow_pickle=False)
        own.replace(file)
    except OSError as error:
        own.unlink(missing_ok=True)
        why = error.strerror or error
        raise ConfigError(f"--resume: {file} cannot be written ({why}); choose another folder") from error
