"""Samples that a graph only seems to combine are tried alone and together before a call is left to one SPA."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineSpec, open_engine

LENGTHS = """g (float[N,6] x) => (float[N,1] y)
<int64[1] last = {1}>
{ turned = Transpose<perm = [1, 0]>(x)  products = MatMul(x, turned)  same = EyeLike(products)
  own = Mul(products, same)  y = ReduceSum(own, last) }"""
"""Squared lengths, from the products of all pairs of samples: of each sample only its own product is left."""

CENTRED = """g (float[N,6] x) => (float[N,6] y)
{ mean = ReduceMean<axes = [0], keepdims = 1>(x)  y = Sub(x, mean) }"""

SPLIT = "tried, not proven"
WHOLE = "samples depend on one another .*: the whole call runs on one SPA"


def inputs(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, 6)).astype(np.float32)


def spec(path: Path, batch: int = 8) -> EngineSpec:
    return EngineSpec(path, batch, dtype="float32")


def test_a_trial_splits_the_call_and_says_that_it_is_no_proof(save_onnx: SaveOnnx) -> None:
    path, x = save_onnx(LENGTHS), inputs(8)
    with open_engine("sdaa", spec(path)) as engine:
        assert engine.independent is False  # what the graph shows
        assert "the whole call on one" in engine.describe()
        with pytest.warns(UserWarning, match=SPLIT):
            found = engine(x)
        assert engine.independent is True
        assert SPLIT in engine.describe()
        assert "MatMul" in engine.describe()  # why it is not proven
        assert "SPA x batch 2" in engine.describe()
        np.testing.assert_allclose(found, (x * x).sum(axis=1, keepdims=True), rtol=1e-5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # reported once
            np.testing.assert_allclose(engine(inputs(5)), (inputs(5) ** 2).sum(axis=1, keepdims=True), rtol=1e-5)
        assert sum(seconds > 0 for seconds in engine.device_seconds()) == 4


def test_samples_that_do_combine_stay_on_one_spa(save_onnx: SaveOnnx) -> None:
    path, x = save_onnx(CENTRED), inputs(8)
    with open_engine("sdaa", spec(path)) as engine:
        with pytest.warns(UserWarning, match=WHOLE):
            found = engine(x)
        assert engine.independent is False
        assert SPLIT not in engine.describe()
        np.testing.assert_allclose(found, x - x.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4])
def test_calls_that_show_nothing_are_not_a_trial(rows: int, save_onnx: SaveOnnx) -> None:
    path, x = save_onnx(CENTRED), np.repeat(inputs(1), rows, axis=0)
    with open_engine("sdaa", spec(path)) as engine, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{WHOLE}")
        np.testing.assert_allclose(engine(x), np.zeros_like(x), atol=1e-6)
        assert engine.independent is False
        np.testing.assert_allclose(engine(inputs(6)), inputs(6) - inputs(6).mean(axis=0), atol=1e-5)
        assert engine.independent is False
