"""Split a data set over several processes: each process gets its own part, and every sample is in exactly one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from engine import ConfigError
from utils.datasets.base import Dataset

RANK = "OMPI_COMM_WORLD_RANK"
SIZE = "OMPI_COMM_WORLD_SIZE"


def rank_and_size(rank: int = -1) -> tuple[int, int]:
    """Return the rank of this process and the number of processes, which ``mpirun`` sets in the environment.

    Without ``OMPI_COMM_WORLD_RANK`` it is ``rank``; for -1, the whole data set, ``(0, 1)`` is returned. Raises
    ConfigError if a variable is not an integer, the size is missing or below 1, or the rank is not in [0, size).
    """
    rank = _whole(RANK, rank)
    size = _whole(SIZE, 0)
    if rank == -1:
        return 0, 1
    if size < 1:
        raise ConfigError(f"rank {rank} needs environment variable {SIZE}, the number of processes; start with mpirun")
    if not 0 <= rank < size:
        raise ConfigError(f"rank {rank} must be from 0 to {size - 1} ({SIZE}={size}); check {RANK}")
    return rank, size


def shard(dataset: Dataset, rank: int, size: int) -> Dataset:
    """Return every ``size``-th sample from sample ``rank`` on, and the same share of the rejected files.

    No sample is repeated or dropped, so parts may differ by one sample and, with more processes than samples, be empty.
    (torch's ``DistributedSampler`` repeats samples to make the parts equal.) Raises ConfigError if ``rank`` is not in
    [0, size).
    """
    if not 0 <= rank < size:
        raise ConfigError(f"rank {rank} of {size} processes does not exist; ranks go from 0 to size - 1")
    return dataset.share(rank, size)


_shares_only: list[bool] = []


@contextmanager
def shares_only() -> Iterator[None]:
    """Load data sets for other processes in this block: what only these need is not read."""
    _shares_only.append(True)
    try:
        yield
    finally:
        _shares_only.pop()


def loads_a_share() -> bool:
    """Return whether this process needs only a share of the data set, or none (:func:`shares_only`)."""
    return bool(_shares_only) or rank_and_size()[1] > 1


def _whole(variable: str, default: int) -> int:
    text = os.environ.get(variable)
    if text is None:
        return default
    if not re.fullmatch("-?[0-9]{1,9}", text):
        raise ConfigError(f"environment variable {variable}={text!r} must be an integer; unset it to run one process")
    return int(text)
