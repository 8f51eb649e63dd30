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
from utils.tasks.prepared import Sequences


@dataclass
class Network:
    """A network of an open model.

    Attributes:
        engine: opened. joined: computes several requests in one call.
        reason: why requests are not joined; empty: they are.
    """

    engine: Engine
    joined: Joined
    reason: str

    @classmethod
    def of(cls, engine: Engine, rows: int) -> Network:
        """Return the network of an engine; ``rows``: most rows of a call."""
        engine.batching.learn()
        reason = engine.batching.why_dependent or "its rows may depend on one another"
        reason = can_join(engine.inputs, engine.outputs) if engine.independent else reason
        if rows < 2:
            reason = "--max_batch is 1"

        def call(arrays: list[Array]) -> list[Array]:
            found = engine(arrays)
            return found if isinstance(found, list) else [found]

        return cls(engine, Joined(call, engine.inputs, engine.outputs, rows), reason)

    def checked(self, arrays: list[Array]) -> list[Array]:
        """Return the arrays of a call in the model's dtypes. Raises InputError if they do not fit."""
        return self.engine.batching.checked(arrays)

    def description(self) -> dict[str, Any]:
        """Return what the server needs to know, in JSON types."""
        return {
            "inputs": [tensor_to_json(spec) for spec in self.engine.inputs],
            "outputs": [tensor_to_json(spec) for spec in self.engine.outputs],
            "joins": not self.reason,
            "reason": self.reason,
            "labels": _labels(self.engine),
        }


@dataclass
class Opened:
    """An open model.

    Attributes:
        source: where it comes from. networks: by name; the only one of a model is ``model``.
        pipeline: of its task; ``None`` for a file without a task.
        sequences: computes sequences of requests; ``None`` for a task that has none.
    """

    source: ModelSource
    networks: Mapping[str, Network]
    pipeline: Pipeline | None
    sequences: Sequences | None = None

    @property
    def engines(self) -> dict[str, Engine]:
        """The engines by name."""
        return {name: network.engine for name, network in self.networks.items()}

    @property
    def task(self) -> Task | None:
        """The task of the model."""
        return None if self.pipeline is None else self.pipeline.task

    @property
    def answers_by_rows(self) -> bool:
        """Whether the task's answers come from one call of the engine, with a row per sample."""
        task = self.task
        return task is not None and task.one_call and not overrides(type(task), "collate")

    def description(self) -> dict[str, Any]:
        """Return what the server needs to know, in JSON types."""
        engines, task, networks = list(self.engines.values()), self.task, self.networks
        return {
            "networks": {name: network.description() for name, network in networks.items()},
            "sequences": None if self.sequences is None else _tensors(self.sequences),
            "rows_of_answers": self.answers_by_rows,
            "target": self.source.target,
            "engine": "; ".join(engine.describe() for engine in engines),
            "simulated": any(engine.simulated for engine in engines),
            "task": None if task is None else task.name,
            "domain": None if task is None else task.domain,
            "takes": None if task is None else task.data_help,
            "images": task is not None and task.image_inputs,
            "streams": can_stream(task),
            "texts": task is not None and any(flag.key == "text" for flag in task.flags),
            "memory": sum(int(engine.device_report().get("memory_per_spa", 0)) for engine in engines),
            "memory_limit": load_card().memory_bytes,
        }


def _tensors(found: Sequences) -> dict[str, list[dict[str, Any]]]:
    return {"inputs": [*map(tensor_to_json, found.inputs)], "outputs": [*map(tensor_to_json, found.outputs)]}


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
    networks = {name: Network.of(engine, source.rows) for name, engine in engines.items()}
    task = None if pipeline is None else pipeline.task
    has_sequences = task is not None and overrides(type(task), "sequences")
    return Opened(source, networks, pipeline, task.sequences(engines) if task is not None and has_sequences else None)
