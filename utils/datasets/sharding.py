"""One data set over several processes: every process takes its own part, and together they take everything once."""

from __future__ import annotations

import os
import re

from engine import ConfigError
from utils.datasets.base import Dataset

RANK = "OMPI_COMM_WORLD_RANK"
SIZE = "OMPI_COMM_WORLD_SIZE"


def rank_and_size(rank: int = -1) -> tuple[int, int]:
    """Return this process's rank and the number of processes, as ``mpirun`` sets them in the environment.

    Args:
        rank: rank to use where ``OMPI_COMM_WORLD_RANK`` is not set; -1 means a single process.

    Returns:
        ``(rank, size)``; ``(0, 1)`` where the rank is -1, that is, everything.

    Raises:
        ConfigError: a variable is not a whole number, the size is missing or below 1, or the rank is not from 0 to
            the size - 1.
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
    """Return every ``size``-th sample from sample ``rank`` on; the rejected files are shared out the same way.

    Over all ranks nothing comes twice and nothing is dropped, so parts may differ by one sample and, with more
    processes than samples, be empty. (torch's ``DistributedSampler`` repeats samples to make the parts equal.)

    Raises:
        ConfigError: ``rank`` is not from 0 to ``size`` - 1.
    """
    if not 0 <= rank < size:
        raise ConfigError(f"rank {rank} of {size} processes does not exist; ranks go from 0 to size - 1")
    part = dataset if size == 1 else dataset.select(range(rank, len(dataset), size))
    if size > 1:
        part.rejected = dataset.rejected[rank::size]
    return part


def _whole(variable: str, default: int) -> int:
    text = os.environ.get(variable)
    if text is None:
        return default
    if not re.fullmatch("-?[0-9]{1,9}", text):
        raise ConfigError(
            f"environment variable {variable}={text!r} must be a whole number; unset it to run one process"
        )
    return int(text)
