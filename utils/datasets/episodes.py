"""Episodes by their seeds, and recordings: observations with the action that a policy chose at each.

A recording is an ``.npz``: ``environment`` (text), ``seeds`` and ``steps`` (int64 [R]: of which episode, and at which
of its steps), ``observations`` ([R, ...]) and ``actions`` ([R, ...]).
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
"""Most observations of an episode that a recording keeps, spread evenly over it."""


class Recording(NamedTuple):
    """What a policy chose in episodes of an environment.

    Attributes:
        environment: its name. seeds, steps: int64 [R]. observations, actions: [R, ...].
    """

    environment: str
    seeds: Array
    steps: Array
    observations: Array
    actions: Array


class Start(NamedTuple):
    """An episode that is to be run.

    Attributes:
        seed: of the environment. environment: that of the recording; empty without one.
        observations, actions: what the recording has of this seed, [K, ...] each; ``None`` without one.
    """

    seed: int
    environment: str = ""
    observations: Array | None = None
    actions: Array | None = None


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        DataError: the file is none, or its arrays do not go together.
    """
    again = "write one with example_valid.py --save_predictions FILE.npz"
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is no recording (it is no .npz file); {again}")
    try:
        file = read_npz(path, fix=again)
    except DataError as error:
        raise DataError(f"{path}: is no recording ({reason_of(error.__cause__ or error)}); {again}") from error
    missing = [key for key in KEYS if key not in file]
    if missing:
        raise DataError(f"{path}: has no {missing[0]!r}; a recording has {', '.join(KEYS)}")
    name = file["environment"]
    if name.ndim or name.dtype.kind != "U":
        raise DataError(f"{path}: environment has shape {name.shape} and dtype {name.dtype}, and is one text; {again}")
    found = Recording(str(name), *(file[key] for key in KEYS[1:]))
    rows = {len(column) if column.ndim else -1 for column in found[1:]}
    if len(rows) != 1 or found.seeds.ndim != 1 or any(column.dtype.kind not in "iu" for column in found[1:3]):
        sizes = ", ".join(f"{key} {list(column.shape)}" for key, column in zip(KEYS[1:], found[1:], strict=True))
        raise DataError(f"{path}: {sizes}; they need one row per observation, seeds and steps whole numbers")
    for key, column in zip(KEYS[3:], found[3:], strict=True):
        if column.dtype.kind not in "biuf":
            raise DataError(f"{path}: {key} are of {column.dtype}, no numbers; {again}")
    return found


def write_recording(path: Path, found: Recording) -> None:
    """Write a recording; the same one always gives the same bytes.

    Raises:
        ConfigError: it cannot be written.
    """
    columns: Any = dict(zip(KEYS, (np.array(found.environment), *found[1:]), strict=True))
    try:
        with path.open("wb") as file:  # given a path, numpy would add .npz to another suffix
            np.savez_compressed(file, **columns)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror or error}); choose another folder") from error


def load_episodes(seeds: Sequence[int], recording: Path | None = None) -> ListDataset:
    """Return one sample per seed, each a unit of its own.

    Args:
        seeds: whole numbers of at least 0, none twice.
        recording: what each seed's observations to compare actions at are taken from.

    Raises:
        DataError: the recording cannot be read.
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
