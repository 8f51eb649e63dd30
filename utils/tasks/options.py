"""The options of a run: the parsed flags of a script, the common ones and those of its task."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine import GOOD_COSINE, ConfigError

MODEL = "model"
"""Name of the model of a task with one model."""

DATA = "data"
"""Name of the data path of a task with one data path."""

WRITTEN = ("json", "resume", "save_predictions")
"""Names of flags of output files."""


class _Paths(dict[str, Path]):
    """Data paths by name; a missing one is a ConfigError with the flag."""

    def __missing__(self, name: str) -> Path:
        given = f"--data_path names {', '.join(self)}" if set(self) - {DATA} else f"--data_path is {self.get(DATA)}"
        fix = "PATH" if name == DATA else f"{name}=PATH"
        raise ConfigError(f"{given if self else 'no data given'}; pass --data_path {fix}")


class Options(argparse.Namespace):
    """The parsed flags of an example script, with those of its task; flags that the script lacks have their defaults.

    Attributes:
        script: ``valid``, ``single`` or ``multi``. task: name of the task.
        flags: names of the task's own flags. traded: names and exact values of those that trade exactness for speed.
        given: names of flags whose value is not the script's default.
        default_ckpt: ``ckpt`` is the script's default.
        ckpt: the ONNX file, or files by name. data_path: the data, or several paths by name, or ``None``.
    """

    script: str
    task: str
    flags: tuple[str, ...]
    traded: tuple[tuple[str, Any], ...]
    given: frozenset[str]
    default_ckpt: bool
    ckpt: Path | dict[str, Path]
    data_path: Path | dict[str, Path] | None
    input_name: list[str]
    batch_size: int
    input_shapes: str | None
    dim: list[str]
    target: str
    dtype: str | None
    pass_path: str
    shard_tables: bool
    skip_postprocess: bool
    verbose: bool
    json: Path | None
    save: Path | None
    save_frames: bool
    frames: slice | None
    show: list[int]
    workers: int | None
    worker_mode: str
    streams: int | None
    resume: Path | None
    save_predictions: Path | None = None
    launcher: str
    num_workers: int
    calib: int
    min_cosine: float | None
    max_drop: float

    @property
    def models(self) -> dict[str, Path]:
        """The ONNX files by name."""
        return dict(self.ckpt) if isinstance(self.ckpt, dict) else {MODEL: self.ckpt}

    @property
    def paths(self) -> dict[str, Path]:
        """The data paths by name; a missing one raises ConfigError."""
        if self.data_path is None:
            return _Paths()
        return _Paths(self.data_path if isinstance(self.data_path, dict) else {DATA: self.data_path})

    @property
    def data_text(self) -> str:
        """The data paths as one text, for messages and JSON."""
        return " ".join(str(p) if name == DATA else f"{name}={p}" for name, p in self.paths.items())

    @property
    def faster(self) -> list[str]:
        """The flags in use that trade exactness for speed, as written."""
        used = [f"--dtype {self.dtype}"] if self.dtype in ("int8", "bfloat16") else []
        return used + [f"--{key} {getattr(self, key)}" for key, exact in self.traded if getattr(self, key) != exact]

    def exactly(self) -> Options:
        """Return the options of the same run at the target's full exactness, without output files."""
        dtype = "float32" if self.dtype in ("int8", "bfloat16") else self.dtype
        return Options(**{**vars(self), **dict(self.traded), "dtype": dtype, **dict.fromkeys(WRITTEN)})

    @property
    def least_cosine(self) -> float:
        """The least cosine of int8 to float32; 0 in an evaluation, which compares the metric."""
        if self.min_cosine is not None:
            return self.min_cosine
        return 0.0 if self.script == "valid" else GOOD_COSINE


def at_least(options: Any, **least: int) -> None:
    """Raise ConfigError if a whole number, or one of a list, is below the limit of its flag, such as ``topk=1``."""
    for key, limit in least.items():
        given = getattr(options, key)
        listed = isinstance(given, Iterable)
        values = list(given) if listed else [] if given is None else [given]
        if any(value < limit for value in values):
            shown = " ".join(map(str, values))
            raise ConfigError(f"--{key} {shown} must be at least {limit}{' each' if listed else ''}")
