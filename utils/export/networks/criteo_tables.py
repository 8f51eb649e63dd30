"""Features, table sizes and example inputs of networks on Criteo's click logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError
from utils.datasets.tabular.criteo import CATEGORIES, NUMBERS
from utils.preprocess.features import HASHES, Features, Field

IDS, DENSE = "ids", "dense"
"""Names of the two inputs: row indices of tables, and counts."""

CHALLENGE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Distinct values per category in the Display Advertising Challenge, as counted by DLRM's authors."""

TERABYTE = (
    *(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10),
    *(2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36),
)
"""The same for the Terabyte Click Logs with at most 40 million rows per table, as in MLPerf's DLRM."""


def capped(rows: Sequence[int], most: int) -> list[int]:
    """Limit the rows of tables to ``most`` (0: no limit); raise ConfigError if it is negative."""
    if most < 0:
        raise ConfigError(f"--max_rows {most} must be at least 1, or 0 for no limit")
    return [min(count, most) if most else count for count in rows]


def criteo_features(rows: Sequence[int], how: str = "crc32") -> Features:
    """Return the features of a model with a table per category: counts as ``log1p``, categories hashed.

    ``rows``: of the 26 tables. ``how``: one of :data:`HASHES`. Raises ConfigError for other values.
    """
    if len(rows) != len(CATEGORIES):
        raise ConfigError(f"{len(rows)} tables for {len(CATEGORIES)} categories of Criteo; use one per category")
    if how not in HASHES:
        raise ConfigError(f"hash {how!r} is not one of {', '.join(HASHES)}")
    numbers = [Field(name, DENSE, "number", transform="log1p") for name in NUMBERS]
    hashed = [Field(name, IDS, "hashed", size=size, hash=how) for name, size in zip(CATEGORIES, rows, strict=True)]
    return Features((*numbers, *hashed), {})


def example_arrays(features: Features) -> dict[str, Array]:
    """Return a model's inputs for two samples by name; all values of the second are missing."""
    line: dict[str, str] = {name: str(place) for place, name in enumerate(NUMBERS)}
    line |= {name: f"{place * 0x1234567:08x}" for place, name in enumerate(CATEGORIES)}
    return {name: np.ascontiguousarray(array) for name, array in features.encoded([line, {}]).items()}


def linear_sizes(state: Mapping[str, Any], prefix: str) -> list[int]:
    """Return the output sizes of the linear layers ``<prefix><number>.weight`` in a state dict, in order."""
    found = {
        int(key.removeprefix(prefix).split(".")[0]): int(tensor.shape[0])
        for key, tensor in state.items()
        if key.startswith(prefix) and key.endswith(".weight") and key.removeprefix(prefix).split(".")[0].isdigit()
    }
    return [found[place] for place in sorted(found)]
