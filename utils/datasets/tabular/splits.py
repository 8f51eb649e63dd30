"""Splits of ratings, or other events of users, into training, validation and test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine import Array, ConfigError

HOWS = ("random", "leave_one_out", "temporal")
"""Kinds of splits."""

PARTS = ("train", "valid", "test")
"""Names of the parts 0, 1 and 2."""

TRAIN, VALID, TEST = range(3)


def split(
    users: Array,
    times: Array,
    how: str,
    seed: int = 0,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    where: str = "the ratings",
) -> Array:
    """Return the part of each row, int8 R: 0 for training, 1 for validation, 2 for test (:data:`PARTS`).

    - ``random``: rows are shuffled by ``numpy.random.default_rng(seed).permutation``; the first ``round(R * test)`` of
      them are the test, the next ``round(R * valid)`` the validation. Later rows of a test user may be in the training.
    - ``leave_one_out``: a user's last row is the test, the one before it the validation, and all earlier ones the
      training. A user of two rows has no validation, one of a single row only training.
    - ``temporal``: rows in order of time, over all users; the last ``round(R * test)`` are the test, the
      ``round(R * valid)`` before them the validation. Users of the test may not occur in the training.

    ``users`` is int64 R, ``times`` float64 R in any unit; rows with equal times keep their order. ``shares`` are those
    of training, validation and test, with sum 1; ``round`` is half up. Only ``random`` uses the seed, and only
    ``leave_one_out`` uses the users and not the shares. ``where`` is the source of the rows, for messages. Raises
    ConfigError if the kind is unknown, shares are invalid, or times are missing.
    """
    users, times = np.asarray(users), np.asarray(times, np.float64)
    if how not in HOWS:
        raise ConfigError(f"split {how!r} must be one of {', '.join(HOWS)}")
    if users.shape != times.shape or users.ndim != 1:
        raise ConfigError(f"users of shape {users.shape} and times of shape {times.shape}; pass one of each per row")
    if how != "random" and not np.isfinite(times).all():
        timeless = int((~np.isfinite(times)).sum())
        raise ConfigError(
            f"{where}: {timeless} of {len(times)} rows have no time, which the split {how} needs; use --split random"
        )
    if how == "leave_one_out":
        return _last_ones(users, times)
    valid, test = _counts(len(users), shares)
    if how == "random":
        late_last = np.random.default_rng(seed).permutation(len(users))[::-1]
    else:
        late_last = np.argsort(times, kind="stable")
    parts = np.full(len(users), TRAIN, np.int8)
    parts[late_last[len(users) - test :]] = TEST
    parts[late_last[len(users) - test - valid : len(users) - test]] = VALID
    return parts


def _counts(rows: int, shares: Sequence[float]) -> tuple[int, int]:
    """Return the numbers of rows in validation and test."""
    usable = len(shares) == len(PARTS) and all(math.isfinite(share) and share >= 0 for share in shares)
    if not usable or abs(sum(shares) - 1) > 1e-6:
        raise ConfigError(f"shares {tuple(shares)} must be three numbers of 0 or more with sum 1, such as 0.8 0.1 0.1")
    test = math.floor(rows * shares[TEST] + 0.5)
    return min(rows - test, math.floor(rows * shares[VALID] + 0.5)), test


def _last_ones(users: Array, times: Array) -> Array:
    """Return the split by each user's last row and the one before it."""
    order = np.lexsort((np.arange(len(users)), times, users))
    own = users[order]
    starts = np.flatnonzero(np.r_[True, own[1:] != own[:-1]]) if len(own) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(own)])
    parts = np.full(len(users), TRAIN, np.int8)
    parts[order[(starts + sizes - 1)[sizes >= 2]]] = TEST
    parts[order[(starts + sizes - 2)[sizes >= 3]]] = VALID
    return parts
