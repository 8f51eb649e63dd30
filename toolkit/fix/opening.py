"""Samples of a model: of a task, or arrays and images without a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, TensorSpec
from toolkit.fix.samples import Samples
from toolkit.fix.task_request import TaskRequest
from toolkit.graph.inputs import Dims, Shapes, batched_specs, check_dims, input_shapes, static_batch
from utils.pipeline.flags.named_values import located
from utils.tasks.base import Task

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class SampleRequest:
    """Selected samples.

    Attributes:
        data: the data path; for a task also several (``NAME=PATH``), or none.
        batch: size of a dynamic batch. limit: number of samples; ``None`` takes all.
        shapes: shapes by input name, for images of other sizes. dims: sizes of symbolic dimensions.
        asked: the task; ``None``: arrays, or images for a classifier.
        own: name of the case whose task and data these are; empty if flags selected them.
    """

    data: Path | Sequence[str] | None
    batch: int = 32
    limit: int | None = None
    shapes: Shapes = field(default_factory=dict)
    dims: Dims = field(default_factory=dict)
    asked: TaskRequest | None = None
    own: str = ""

    @property
    def given(self) -> bool:
        """Whether samples were selected, by flags or by the case."""
        return bool(self.data) or self.asked is not None


def open_samples(path: Path, model: ModelProto, wanted: SampleRequest) -> Samples:
    """Open the data set of a model; ``path``: the ONNX file; ``model``: the loaded file.

    Raises ConfigError, DataError or ModelError if flags, data and model do not fit.
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
    found = load_samples(located(Path(words[0])), specs, metadata(model), batch, wanted.limit)
    found.where = words[0]
    return found


def _sized(spec: TensorSpec, shape: Sequence[int]) -> TensorSpec:
    """Return an input with a static shape, except for a dynamic batch."""
    axis = spec.batch_axis
    return replace(spec, shape=tuple(spec.shape[i] if i == axis else size for i, size in enumerate(shape)))
