"""The constructed models of the templates, written as ``teco new`` writes them, and a small driver for any task."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from string import Template as Text
from typing import Any

import onnx
from support import ROOT

from engine import Engine, EngineSpec, open_engine
from utils.metrics.base import Metric
from utils.tasks.base import AnyTask, task_class
from utils.tasks.model import Model

NAME = "tiny"


def written(task: AnyTask, folder: Path) -> Path:
    """Write a template's files and sample data into a folder, run its export there, and return the folder."""
    assert task.template is not None
    words = {"model": NAME, "title": "Tiny", "folder": "example/x/tiny", "install": "python -m pip install ."}
    words["paths"] = f'sys.path.insert(0, "{ROOT}")'
    words |= task.template.fill(folder)
    for file in task.template.folder.glob("*.tmpl"):
        text = Text(file.read_text(encoding="utf-8")).substitute(words)
        (folder / file.name.removesuffix(".tmpl")).write_text(text, encoding="utf-8")
    done = subprocess.run([sys.executable, "export_onnx.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "constructed" in done.stdout
    return folder


def options(task: AnyTask, script: str = "valid", /, **given: Any) -> argparse.Namespace:
    """Return a task's flags with their defaults, as a script would have them."""
    known = {flag.key: flag.default for flag in task.flags}
    return argparse.Namespace(**{"script": script, "batch_size": 16, **known, **given})


def bound(task: AnyTask, model: Any, script: str = "valid", /, **given: Any) -> Any:
    """Return the task of a run, bound to a model, with its flags at their defaults but for those that are given."""
    return task_class(task)(options(task, script, **given)).bind(model)


def opened(ckpt: Path, target: str, **given: Any) -> Engine:
    """Open an engine on a file."""
    return open_engine(target, EngineSpec(ckpt=ckpt, batch_size=16, **given))


def described(engine: Engine, dims: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    """Describe an engine; the symbols are read off the file, the dims are the caller's."""
    graph = onnx.load(engine.spec.ckpt).graph
    symbols = {
        value.name: tuple(dim.dim_param or None for dim in value.type.tensor_type.shape.dim) for value in graph.input
    }
    inputs = tuple(replace(spec, symbols=symbols[spec.name]) for spec in engine.inputs)
    return Model(
        engine.spec.ckpt, inputs, tuple(engine.outputs), engine.input_dtype, dict(dims or {}), dict(engine.metadata)
    )


def evaluated(
    task: AnyTask, engine: Engine, model: Model, path: Path, opt: argparse.Namespace
) -> tuple[Metric, list[Any]]:
    """Take a data set through a task and an engine; return the metric and all predictions."""
    run = task_class(task)(opt).bind(model)
    dataset = run.load({"data": path})
    metric = run.metric(dataset)
    predictions: list[Any] = []
    for batch in dataset.batches(opt.batch_size):
        prepared = run.prepare(batch.samples)
        arrays = run.collate([prepared])
        found = run.decode(engine(list(arrays)), prepared.contexts)
        if batch.targets is not None:
            metric.update(found, batch.targets, prepared.contexts)
        predictions += found
    return metric, predictions
