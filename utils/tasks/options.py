"""The options of a run: the parsed flags of a script, the common ones and those of its task."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine import GOOD_COSINE, ConfigError

MODEL = "model"
"""Name of the only model where a task has one."""

DATA = "data"
"""Name of the only data path where a task has one."""

WRITTEN = ("json", "resume", "save_predictions")
"""Flags that name files that a run writes."""


class _Paths(dict[str, Path]):
    """Data paths by name; asked for one that was not given, it says how to give it."""

    def __missing__(self, name: str) -> Path:
        given = f"--data_path names {', '.join(self)}" if set(self) - {DATA} else f"--data_path is {self.get(DATA)}"
        fix = "PATH" if name == DATA else f"{name}=PATH"
        raise ConfigError(f"{given if self else 'no data given'}; pass --data_path {fix}")


class Options(argparse.Namespace):
    """The parsed flags of an example script, with those of the task; what a script lacks has its default.

    Attributes:
        script: ``valid``, ``single`` or ``multi``. task: name of the task.
        ckpt: the ONNX file, or files by name. data_path: the data, several by name, or ``None``.
        flags: names of the task's own flags. given: names of the flags whose value is not the script's default.
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
        """The data paths by name; empty where there is none. One that was not given raises ConfigError."""
        if self.data_path is None:
            return _Paths()
        return _Paths(self.data_path if isinstance(self.data_path, dict) else {DATA: self.data_path})

    @property
    def data_text(self) -> str:
        """The data paths as one text, for messages and JSON."""
        return " ".join(str(p) if name == DATA else f"{name}={p}" for name, p in self.paths.items())

    @property
    def faster(self) -> list[str]:
        """The flags in use that trade exactness for speed, as they were written."""
        used = [f"--dtype {self.dtype}"] if self.dtype in ("int8", "bfloat16") else []
        return used + [f"--{key} {getattr(self, key)}" for key, exact in self.traded if getattr(self, key) != exact]

    def exactly(self) -> Options:
        """Return the flags of the same run, as exact as its target can be, which leaves no files."""
        dtype = "float32" if self.dtype in ("int8", "bfloat16") else self.dtype
        return Options(**{**vars(self), **dict(self.traded), "dtype": dtype, **dict.fromkeys(WRITTEN)})

    @property
    def least_cosine(self) -> float:
        """The least cosine to float32 that int8 may have: any in an evaluation, which compares the metric."""
        if self.min_cosine is not None:
            return self.min_cosine
        return 0.0 if self.script == "valid" else GOOD_COSINE
