"""Episodes by seed, and recordings: observations with the actions that a policy chose.

A recording is an ``.npz``: ``environment`` (text), ``seeds`` and ``steps`` (int64 [R]: the episode, and the step in
it), ``observations`` ([R, ...]) and ``actions`` ([R, ...]).
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.text import reason_of
from utils.arrays import read_npz
from utils.datasets.base import ListDataset

KEYS = ("environment", "seeds", "steps", "observations", "actions")

RECORDED = 40
"""Maximum number of observations per episode in a recording, spread evenly over the episode."""


class Recording(NamedTuple):
    """Actions of a policy in episodes of an environment; R rows (see the module)."""

    environment: str
    seeds: Array
    steps: Array
    observations: Array
    actions: Array


class Start(NamedTuple):
    """An episode to run: its seed, and from a recording the environment and this seed's rows ([K, ...] each)."""

    seed: int
    environment: str = ""
    observations: Array | None = None
    actions: Array | None = None


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises DataError if the file is not a recording, or its arrays do not match."""
    again = "write one with example_valid.py --save_predictions FILE.npz"
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: not a recording (not an .npz file); {again}")
    try:
        file = read_npz(path, fix=again)
    except DataError as error:
        raise DataError(f"{path}: not a recording ({reason_of(error.__cause__ or error)}); {again}") from error
    missing = [key for key in KEYS if key not in file]
    if missing:
        raise DataError(f"{path}: has no {missing[0]!r}; a recording has {', '.join(KEYS)}")
    name = file["environment"]
    if name.ndim or name.dtype.kind != "U":
        raise DataError(f"{path}: environment must be one text, got shape {name.shape} and dtype {name.dtype}; {again}")
    found = Recording(str(name), *(file[key] for key in KEYS[1:]))
    rows = {len(column) if column.ndim else -1 for column in found[1:]}
    if len(rows) != 1 or found.seeds.ndim != 1 or any(column.dtype.kind not in "iu" for column in found[1:3]):
        sizes = ", ".join(f"{key} {list(column.shape)}" for key, column in zip(KEYS[1:], found[1:], strict=True))
        raise DataError(f"{path}: {sizes}; expected one row per observation, and integers as seeds and steps")
    for key, column in zip(KEYS[3:], found[3:], strict=True):
        if column.dtype.kind not in "biuf":
            raise DataError(f"{path}: {key} have dtype {column.dtype}, expected numbers; {again}")
    return found


def write_recording(path: Path, found: Recording) -> None:
    """Write a recording; the same content gives the same bytes. Raises ConfigError if the file cannot be written."""
    columns: Any = dict(zip(KEYS, (np.array(found.environment), *found[1:]), strict=True))
    try:
        with path.open("wb") as file:  # given a path, numpy would append .npz to another suffix
            np.savez_compressed(file, **columns)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror or error}); choose another folder") from error


def load_episodes(seeds: Sequence[int], recording: Path | None = None) -> ListDataset:
    """Return one sample per seed, each an independent unit; seeds are distinct integers of at least 0.

    The observations at which actions are compared come from the recording. Raises DataError if it cannot be read.
    """
    names, targets = [f"seed {seed}" for seed in seeds], [int(seed) for seed in seeds]
    if recording is None:
        return ListDataset([Start(seed) for seed in targets], targets, names=names)
    found = read_recording(recording)
    starts = []
    for seed in targets:
        rows = found.seeds == seed
        starts.append(Start(seed, found.environment, found.observations[rows], found.actions[rows]))
    return ListDataset(starts, targets, names=names, files=[recording])
