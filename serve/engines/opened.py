"""A model opened in an engine process: its engines, its task, and the description that the server gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, Engine, EngineSpec, TecoInferError, open_engine
from engine.sdaa import load_card
from engine.signature import tensor_to_json
from serve.engines.completing import can_stream
from serve.engines.joined import Joined, can_join
from serve.source import ModelSource
from utils.datasets.base import Dataset
from utils.pipeline.run.pipeline import Pipeline
from utils.stored import ModelMetadata
from utils.tasks.base import Task, overrides


@dataclass
class Opened:
    """An open model.

    Attributes:
        source: where it comes from. engines: by name.
        pipeline: of its task; ``None`` for a file without a task.
        joined: computes several requests in one call; ``None`` for a task with several models.
        reason: why requests are not joined; empty: they are.
    """

    source: ModelSource
    engines: Mapping[str, Engine]
    pipeline: Pipeline | None
    joined: Joined | None
    reason: str

    @property
    def task(self) -> Task | None:
        """The task of the model."""
        return None if self.pipeline is None else self.pipeline.task

    @property
    def answers_by_rows(self) -> bool:
        """Whether the task's answers come from one call of the engine, with a row per sample."""
        task = self.task
        return task is not None and task.one_call and not overrides(type(task), "collate")

    def checked(self, arrays: list[Array]) -> list[Array]:
        """Return the arrays of a call in the model's dtypes. Raises InputError if they do not fit."""
        (engine,) = self.engines.values()
        return engine.batching.checked(arrays)

    def description(self) -> dict[str, Any]:
        """Return what the server needs to know, in JSON types."""
        first = next(iter(self.engines.values()))
        alone = self.joined is not None
        task = self.task
        return {
            "inputs": [tensor_to_json(spec) for spec in first.inputs] if alone else [],
            "outputs": [tensor_to_json(spec) for spec in first.outputs] if alone else [],
            "joins": not self.reason,
            "reason": self.reason,
            "rows_of_answers": self.answers_by_rows,
            "target": self.source.target,
            "engine": "; ".join(engine.describe() for engine in self.engines.values()),
            "simulated": any(engine.simulated for engine in self.engines.values()),
            "labels": _labels(first),
            "task": None if task is None else task.name,
            "domain": None if task is None else task.domain,
            "takes": None if task is None else task.data_help,
            "images": task is not None and task.image_inputs,
            "streams": can_stream(task),
            "texts": task is not None and any(flag.key == "text" for flag in task.flags),
            "memory": sum(int(engine.device_report().get("memory_per_spa", 0)) for engine in self.engines.values()),
            "memory_limit": load_card().memory_bytes,
        }


def _labels(engine: Engine) -> list[str] | None:
    """Return the class names that the model stores; invalid ones are reported when the task reads them."""
    try:
        return ModelMetadata(engine.metadata, engine.spec.ckpt).labels
    except TecoInferError:
        return None


@contextmanager
def opened(source: ModelSource) -> Iterator[Opened]:
    """Open a model with its task, if it has one. Raises TecoInferError if that is not possible."""
    if source.script:
        with _of_script(source) as found:
            yield found
        return
    spec = EngineSpec(ckpt=Path(source.ckpt), batch_size=source.rows, dtype=source.flags.get("dtype"))
    with open_engine(source.target, spec) as engine:
        _refuse_uncalibrated(source, {"model": engine})
        yield _found(source, {"model": engine}, None)


def task_of(source: ModelSource) -> Task:
    """Return the task of a model's script, with the script's defaults and the flags of the source.

    Raises ConfigError if the script or a flag cannot be used.
    """
    from utils.pipeline.cli import call_of
    from utils.pipeline.flags.options import options
    from utils.tasks.base import task_class

    call = call_of(Path(source.script))
    kind = task_class(call.task)
    given = {"target": source.target, "batch_size": source.rows, **source.flags}
    return kind(options(None, kind, "single", [], **{**call.defaults, **given}))


@contextmanager
def _of_script(source: ModelSource) -> Iterator[Opened]:
    from utils.pipeline.session import load_data, open_engines

    task = task_of(source)
    with open_engines(task) as engines:
        _refuse_uncalibrated(source, engines)
        dataset: Dataset | None = None
        if overrides(type(task), "setup") and task.options.data_path is not None:
            dataset = load_data(task)
        yield _found(source, engines, Pipeline(task, engines, dataset))


def _refuse_uncalibrated(source: ModelSource, engines: Mapping[str, Engine]) -> None:
    if any(engine.calibration_samples for engine in engines.values()):
        raise ConfigError(
            f"{source.name}: int8 needs samples to choose its ranges; save a calibrated model, or use another --dtype"
        )


def _found(source: ModelSource, engines: Mapping[str, Engine], pipeline: Pipeline | None) -> Opened:
    if len(engines) != 1:
        return Opened(source, engines, pipeline, None, "it has several networks")
    (engine,) = engines.values()
    engine.batching.learn()
    reason = engine.batching.why_dependent or "its rows may depend on one another"
    reason = can_join(engine.inputs, engine.outputs) if engine.independent else reason
    if source.rows < 2:
        reason = "--max_batch is 1"

    def call(arrays: list[Array]) -> list[Array]:
        found = engine(arrays)
        return found if isinstance(found, list) else [found]

    return Opened(source, engines, pipeline, Joined(call, engine.inputs, engine.outputs, source.rows), reason)
