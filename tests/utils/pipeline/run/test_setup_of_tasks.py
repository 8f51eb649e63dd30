"""A task's ``setup`` may call its engines, also those that are to be calibrated first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx, made

from engine import EngineSpec, open_engine
from utils.datasets import ListDataset
from utils.pipeline.flags.options import Options
from utils.pipeline.run.calibration import calibrate
from utils.pipeline.run.pipeline import Pipeline
from utils.tasks.base import Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

CORPUS = np.linspace(-3, 3, 32, dtype=np.float32).reshape(8, 4)
"""What ``setup`` embeds: three times as wide as the samples."""


def prepare(samples: Any, model: Model, options: Any) -> Prepared:
    return Prepared([np.stack(samples)])


def setup(engines: Mapping[str, Any], dataset: Any, options: Any) -> np.ndarray:
    options.times.append(sorted(engines))
    return np.asarray(engines["model"](CORPUS))


def infer(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> np.ndarray:
    return np.asarray(engines["model"](arrays)) @ state.T


def refuse(*_: Any) -> Any:
    raise AssertionError


TASK = Task("search", "retrieval", refuse, prepare, lambda out, *_: out, refuse, refuse, setup=setup, infer=infer)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_setup_may_call_an_engine(save_onnx: SaveOnnx, dtype: str) -> None:
    path = save_onnx("m (float[N, 4] x) => (float[N, 4] y) <float[4,4] w={1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>"
                     " { y = MatMul(x, w) }")  # fmt: skip
    samples = list(CORPUS / 3)
    dataset = ListDataset(samples, list(range(8)))
    with open_engine("cpu", EngineSpec(path, batch_size=8, dtype=dtype, calibration=8)) as engine:
        options = Options(times=[])
        engines = {"model": engine}
        pipeline = Pipeline(made(TASK, options, Model.of(engine)), engines, dataset)
        calibrate(pipeline, dataset.batches(8))
        found = pipeline.infer([np.stack(samples)], None, 8).outputs
        pipeline.infer([np.stack(samples)], None, 8)
    np.testing.assert_allclose(found, (CORPUS / 3) @ CORPUS.T, atol=0.4)  # clipped at a third it would be off by 12
    assert len(options.times) == (2 if dtype == "int8" else 1)  # on what records, and for good


def test_setup_runs_before_the_first_sample(save_onnx: SaveOnnx) -> None:
    path = save_onnx("m (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }")
    with open_engine("onnx", EngineSpec(path, batch_size=8)) as engine:
        options = Options(times=[])
        Pipeline(made(replace(TASK, name="other"), options, Model.of(engine)), {"model": engine}, ListDataset([], []))
    assert options.times == [["model"]]
