"""Fingerprint of a table of samples: a hash that changes when a sample, its label or its file changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.table import SampleTable

if TYPE_CHECKING:
    from hashlib import _Hash

    from engine import Array

BLOCK = 1024
"""Samples hashed per step; the hash depends on it."""

ROW_BYTES = 2**20
"""Approximate bytes of rows hashed per step; the hash does not depend on it."""


def fingerprint(samples: SampleTable, rows: Array | None) -> str:
    """Return 64 hex digits; see :meth:`utils.datasets.samples.Dataset.fingerprint`."""
    from hashlib import sha256

    digest = sha256(f"{len(samples)} {samples.labels is not None} {rows is not None}\n".encode())
    relative = samples.relative()
    for start in range(0, len(samples), BLOCK):
        part = slice(start, start + BLOCK)
        digest.update("\0".join(relative.names(part)).encode("utf-8", "surrogatepass"))
        if rows is None:
            digest.update(np.array([size_and_time(name) for name in samples.names(part)], "<i8").tobytes())
        if samples.labels is not None:
            digest.update(samples.labels[part].astype("<i8").tobytes())
    if rows is not None:
        _add_rows(digest, rows)
    return digest.hexdigest()


def _add_rows(digest: _Hash, rows: Array) -> None:
    digest.update(f"{rows.dtype.str} {rows.shape}".encode())
    count = max(1, ROW_BYTES * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), count):
        digest.update(rows[start : start + count].tobytes())
