"""What networks on Criteo's click logs have in common: their features, the tables' rows, and what an export runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError
from utils.datasets.tabular.criteo import CATEGORIES, NUMBERS
from utils.preprocess.features import HASHES, Features, Field

IDS, DENSE = "ids", "dense"
"""Names of the two inputs: numbers of rows of tables, and counts."""

CHALLENGE = (
    *(1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194),
    *(27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572),
)
"""Different values of each category in the Display Advertising Challenge, as DLRM's authors count them."""

TERABYTE = (
    *(40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10),
    *(2209, 11938, 155, 4, 976, 14, 40000000, 40000000, 40000000, 590152, 12973, 108, 36),
)
"""The same of the Terabyte Click Logs, tables of at most 40 million rows, as MLPerf's DLRM has them."""


def capped(rows: Sequence[int], most: int) -> list[int]:
    """Return the rows of tables of at most so many rows each; 0: all of them.

    Raises:
        ConfigError: ``most`` is below 0.
    """
    if most < 0:
        raise ConfigError(f"--max_rows {most} must be at least 1, or 0 for no limit")
    return [min(count, most) if most else count for count in rows]


def criteo_features(rows: Sequence[int], how: str = "crc32") -> Features:
    """Return the features of a model with a table per category: counts as ``log1p``, categories hashed.

    Args:
        rows: of each category's table, 26 in all. how: what the row of a value follows from, one of :data:`HASHES`.

    Raises:
        ConfigError: there are not as many tables as categories, or the hash is unknown.
    """
    if len(rows) != len(CATEGORIES):
        raise ConfigError(
            f"{len(rows)} tables for {len(CATEGORIES)} categories of Criteo's; there must be one for each"
        )
    if how not in HASHES:
        raise ConfigError(f"hash {how!r} is none of {', '.join(HASHES)}")
    numbers = [Field(name, DENSE, "number", transform="log1p") for name in NUMBERS]
    hashed = [Field(name, IDS, "hashed", size=size, hash=how) for name, size in zip(CATEGORIES, rows, strict=True)]
    return Features((*numbers, *hashed), {})


def example_arrays(features: Features) -> dict[str, Array]:
    """Return a model's inputs for two lines, by name; the second one lacks every value."""
    line: dict[str, str] = {name: str(place) for place, name in enumerate(NUMBERS)}
    line |= {name: f"{place * 0x1234567:08x}" for place, name in enumerate(CATEGORIES)}
    return {name: np.ascontiguousarray(array) for name, array in features.encoded([line, {}]).items()}


def linear_sizes(state: Mapping[str, Any], prefix: str) -> list[int]:
    """Return the outputs of each linear layer of a stack in a state dict, from the first to the last.

    Args:
        state: weights by key. prefix: of the stack's keys; the layers' numbers follow it.
    """
    found = {
        int(key.removeprefix(prefix).split(".")[0]): int(tensor.shape[0])
        for key, tensor in state.items()
        if key.startswith(prefix) and key.endswith(".weight") and key.removeprefix(prefix).split(".")[0].isdigit()
    }
    return [found[place] for place in sorted(found)]
