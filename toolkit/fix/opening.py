"""Samples of a model: of a task, or arrays and images without a task."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, TensorSpec
from toolkit.fix.samples import Samples
from toolkit.graph.inputs import Dims, Shapes, batched_specs, check_dims, input_shapes, static_batch
from utils.pipeline.flags.options import COMMON, MODEL, Options, options
from utils.tasks.base import Task
from utils.tasks.legacy import task_class

if TYPE_CHECKING:
    from onnx import ModelProto


_OURS = ("batch_size", "dim", "input_shapes", "input_name")
"""Common flags of the scripts that determine the model's inputs; the others configure runs and are rejected here."""


@dataclass(frozen=True)
class TaskRequest:
    """Task selected on the command line.

    Attributes:
        task: the task; a legacy task is converted to a class. flags: its flags, as words.
        model_name: name of the model in the task; empty if the task has one model.
        others: ONNX files of the other models by name.
    """

    task: type[Task]
    flags: Sequence[str] = ()
    model_name: str = ""
    others: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "task", task_class(self.task))

    @property
    def name(self) -> str:
        """Name of the model in the task.

        Raises:
            ConfigError: the name is missing or unknown, or given for a task with one model.
        """
        known = self.task.models
        if not known:
            if self.model_name or self.others:
                raise ConfigError(f"task {self.task.name} has one model; leave out --model_name and --ckpt")
            return MODEL
        if self.model_name not in known:
            flag = f"--model_name {self.model_name}" if self.model_name else "no --model_name"
            raise ConfigError(f"{flag}: task {self.task.name} has the models {', '.join(known)}; pass one of them")
        return self.model_name

    def options(self, path: Path, data: Sequence[str], batch: int, dims: Mapping[str, Sequence[int]]) -> Options:
        """Return the task's options for a model.

        Args:
            path: the model. data: data paths, each ``PATH`` or ``NAME=PATH``. batch: samples per call.
            dims: sizes of symbolic dimensions.

        Raises:
            ConfigError: a flag is invalid or not supported here.
        """
        files = {**self.others, self.name: path} if self.task.models else path
        words = ["--data_path", *data] if data else []
        words += ["--batch_size", str(batch)]
        if dims:
            words += ["--dim", *(f"{symbol}={','.join(map(str, sizes))}" for symbol, sizes in dims.items())]
        found = self._parsed([*words, *self.flags], files)
        own = {flag.key for flag in self.task.flags}
        for flag in COMMON:
            if flag.key not in (*_OURS, *own) and getattr(found, flag.key) != flag.default:
                raise ConfigError(f"{flag.name} is a flag of the scripts and not supported here; leave it out")
        if found.batch_size != batch:
            raise ConfigError(f"--batch_size {found.batch_size} after --: pass --batch_size before it")
        return found

    def _parsed(self, words: Sequence[str], files: Path | Mapping[str, Path]) -> Options:
        printed = io.StringIO()
        try:
            with redirect_stderr(printed):
                return options(f"The flags of task {self.task.name}.", self.task, "valid", words, ckpt=files)
        except SystemExit as stop:
            if not stop.code:  # --help
                raise
            line = printed.getvalue().strip().splitlines()[-1:] or [""]
            raise ConfigError(f"task {self.task.name}: {line[0].partition('error: ')[2] or line[0]}") from stop


@dataclass(frozen=True)
class SampleRequest:
    """Selected samples.

    Attributes:
        data: the data path; for a task also several (``NAME=PATH``), or none.
        batch: size of a dynamic batch. limit: number of samples; ``None`` takes all.
        shapes: shapes by input name, for images of other sizes. dims: sizes of symbolic dimensions.
        asked: the task; ``None``: arrays, or images for a classifier.
    """

    data: Path | Sequence[str] | None
    batch: int = 32
    limit: int | None = None
    shapes: Shapes = field(default_factory=dict)
    dims: Dims = field(default_factory=dict)
    asked: TaskRequest | None = None


def open_samples(path: Path, model: ModelProto, wanted: SampleRequest) -> Samples:
    """Open the data set of a model.

    Args:
        path: the ONNX file. model: the loaded file. wanted: the selected samples.

    Raises:
        ConfigError, DataError, ModelError: flags, data and model do not fit.
    """
    specs = batched_specs(model, wanted.dims)
    check_dims(specs, wanted.dims)
    batch = static_batch(specs) or wanted.batch
    if wanted.asked is None:
        return _arrays(model, specs, batch, wanted)
    from toolkit.fix.task_samples import TaskSamples

    if wanted.shapes:
        raise ConfigError("--shape is for data without a task; pass --dim NAME=SIZE, or a flag of the task after --")
    own = wanted.asked.task.collate is not Task.collate
    if all(spec.batch_axis is None for spec in specs) and not own:
        batch = 1  # one sample per call, unless the task packs several
    opt = wanted.asked.options(path, _words(wanted.data), batch, wanted.dims)
    return TaskSamples(path, [spec.name for spec in specs], wanted.asked, opt, wanted.limit)


def _words(data: Path | Sequence[str] | None) -> list[str]:
    if data is None:
        return []
    return [str(data)] if isinstance(data, Path) else list(data)


def _arrays(model: ModelProto, specs: Sequence[TensorSpec], batch: int, wanted: SampleRequest) -> Samples:
    from engine.onnx import metadata
    from toolkit.fix.array_samples import load_samples

    words = _words(wanted.data)
    if len(words) != 1:
        raise ConfigError(f"--data {' '.join(words)}: without --task, pass one path, an .npz or images")
    if wanted.shapes or wanted.dims:
        full = input_shapes(model, batch, wanted.shapes, wanted.dims)
        specs = [spec if spec.batch_axis is None else _sized(spec, full[spec.name]) for spec in specs]
    found = load_samples(Path(words[0]), specs, metadata(model), batch, wanted.limit)
    found.where = words[0]
    return found


def _sized(spec: TensorSpec, shape: Sequence[int]) -> TensorSpec:
    """Return an input with a static shape, except for a dynamic batch."""
    axis = spec.batch_axis
    return replace(spec, shape=tuple(spec.shape[i] if i == axis else size for i, size in enumerate(shape)))
