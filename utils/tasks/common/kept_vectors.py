"""Cache of a corpus' vectors in a folder, so that a resumed run does not compute them again."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from engine import Array, ConfigError, DataError, Engine
from tecoinfer_modelzoo.files import read_regular
from utils.arrays import array_errors
from utils.identity import Inputs, computed_by, inputs_of
from utils.tasks import Options

Making: TypeAlias = Callable[[int, int], tuple[Array, dict[str, int]]]
"""``(start, stop) -> (vectors, counts)``: computes the vectors of texts ``start`` to ``stop - 1``, N x D, with
counts."""


def kept_vectors(
    folder: Path | None, engine: Engine, what: Sequence[Any], count: int, step: int, make: Making, options: Options
) -> tuple[Array, dict[str, int]]:
    """Return the vectors of ``count`` texts, N x D float32, and their counts; parts in the cache are read.

    Args:
        folder: of the cache, one file per part; ``None``: without a cache. engine: its files, target and dtype are part
            of the cache key. what: further parts of the key. count: number of texts. step: texts per part.
        make: computes a part. options: the content of files that flags name, such as a tokenizer, is part of the key.

    Raises:
        ConfigError: A part cannot be written. DataError: A file changed while a part was computed.
    """
    flags, path = {key: getattr(options, key) for key in options.flags}, engine.spec.pass_path
    inputs = None if folder is None else inputs_of({"model": engine.spec.ckpt}, flags, [make], pass_path=path)
    key = "" if inputs is None else _key(engine, inputs, what)
    parts, counts = [], Counter[str]()
    for start in range(0, count, step):
        stop = min(start + step, count)
        file = None if folder is None else folder / f"{key}-{start}-{stop}.npy"
        found = _read(file, stop - start)
        if found is None:
            part, counted = make(start, stop)
            found = np.ascontiguousarray(part, np.float32), counted
            if file is not None and inputs is not None:
                if (changed := inputs.changed()) is not None:
                    raise DataError(f"{changed} changed while vectors were made with it; run again")
                _write(file, *found)
        parts.append(found[0])
        counts.update(found[1])
    return parts[0] if len(parts) == 1 else np.concatenate(parts), dict(counts)


def _key(engine: Engine, inputs: Inputs, what: Sequence[Any]) -> str:
    """Return the cache key: 24 hex digits of a hash of everything that the vectors depend on."""
    facts = (computed_by(engine), sorted(engine.spec.dims.items()), inputs.digest, *what)
    return sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _read(file: Path | None, rows: int) -> tuple[Array, dict[str, int]] | None:
    """Return a part and its counts; ``None`` if it is missing or damaged."""
    if file is None or not file.is_file():
        return None
    try:
        found: Array = np.load(file, allow_pickle=False)
        counts = json.loads(read_regular(file.with_suffix(".json")))
    except array_errors():
        return None
    if not isinstance(counts, dict) or not all(isinstance(one, int) for one in counts.values()):
        return None
    return (found, counts) if found.ndim == 2 and len(found) == rows and found.dtype == np.float32 else None


def _write(file: Path, part: Array, counts: dict[str, int]) -> None:
    """Write the counts, then the part; both atomically, for readers in other processes."""
    beside = file.with_suffix(".json")
    own = [one.with_name(f".{one.name}.{os.getpid()}") for one in (beside, file)]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        own[0].write_text(json.dumps(counts), encoding="utf-8")
        with own[1].open("wb") as out:
            np.save(out, part, allow_pickle=False)
        own[0].replace(beside)
        own[1].replace(file)
    except OSError as error:
        for one in own:
            one.unlink(missing_ok=True)
        why = error.strerror or error
        raise ConfigError(f"--resume: {file} cannot be written ({why}); choose another folder") from error
