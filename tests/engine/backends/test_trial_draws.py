"""Inputs of a trial: realistic ranges and dtypes, within the tables that they index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineError, EngineSpec, open_engine
from engine.backends import trial
from engine.backends.null import NullEngine
from engine.backends.trial import Contender, choose, random_input, varied_inputs
from engine.base import Array
from engine.onnx import load_model
from engine.onnx.table_indices import random_input_bounds

KINDS = """g (float[N,3] f, float16[N,3] h, bool[N,3] b, int64[N,3] whole, uint8[N,3] small, int64[N] row,
   int64[2] size)
=> (float[N,3] y) <float[5,3] t = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14}> {
    rows = Gather(t, row)
    a = Cast <to = 1> (whole)
    c = Cast <to = 1> (small)
    d = Cast <to = 1> (b)
    e = Cast <to = 1> (h)
    big = ConstantOfShape(size)
    g0 = Sum(f, rows, a, c, d, e)
    g1 = ReduceSum <keepdims = 0> (big)
    y = Add(g0, g1)
}"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.0)


def test_draws_are_of_every_kind(save_onnx: SaveOnnx) -> None:
    path = save_onnx(KINDS)
    bounds = random_input_bounds(load_model(path))
    with NullEngine(EngineSpec(ckpt=path)) as engine:
        draws = list(varied_inputs(engine, 500, bounds))
        assert len(draws) > 1
        for arrays in draws:
            f, h, b, whole, small, row, size = arrays
            assert [array.dtype for array in arrays] == [tensor.dtype for tensor in engine.inputs]
            assert f.min() < 0 < f.max()
            assert h.min() < 0 < h.max()
            assert {True, False} <= set(b.reshape(-1).tolist())
            assert whole.min() < -1000
            assert whole.max() > 2**19
            assert (whole % 2).any()
            assert small.max() > 200
            assert set(row.tolist()) == set(range(5))
            assert not size.any()
        with open_engine("onnx", EngineSpec(ckpt=path)) as exact:
            for arrays in draws:
                assert np.isfinite(exact(arrays)).all()


class Halved(NullEngine):
    """Right for zeros and for positive numbers, which the first call has."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return [np.abs(inputs[0])]


class Fails(NullEngine):
    def infer(self, inputs: list[Array]) -> list[Array]:
        if (inputs[0] < 0).any():
            raise EngineError("negative numbers")
        return [inputs[0].copy()]


def chosen(save_onnx: SaveOnnx, other: type[NullEngine], first: type[Any] | None = None) -> tuple[str, list[str]]:
    spec = EngineSpec(ckpt=save_onnx("g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }"))
    contenders = [
        Contender("baseline", lambda: open_engine("onnx", spec) if first is None else first(spec)),
        Contender("other", lambda: other(spec)),
    ]
    engine, verdict = choose(
        contenders,
        "key",
        lambda engine: random_input(engine, 8),
        agree=True,
        draws=lambda engine: varied_inputs(engine, 8, {}),
    )
    engine.release()
    return verdict.chosen, list(verdict.refused)


@pytest.mark.parametrize("other", [Halved, Fails])
def test_an_engine_that_is_wrong_on_a_draw_is_not_chosen(other: type[NullEngine], save_onnx: SaveOnnx) -> None:
    for _ in range(2):
        assert chosen(save_onnx, other) == ("baseline", ["other"])


def test_a_draw_that_the_baseline_cannot_compute_is_left_out(save_onnx: SaveOnnx) -> None:
    name, refused = chosen(save_onnx, Halved, first=Fails)
    assert name in ("baseline", "other")
    assert refused == []


def test_an_index_out_of_range_refuses_no_engine(save_onnx: SaveOnnx) -> None:
    """Where the graph does not say which rows there are, a draw may name one that is not."""
    text = """g (int64[N] x) => (float[N] y) <float[4] t = {0, 1, 2, 3}, int64 one = {1}> {
        i = Sub(x, one)
        y = Gather(t, i)
    }"""
    with open_engine("cpu", EngineSpec(ckpt=save_onnx(text))) as engine:
        assert "not used" not in engine.describe()
        np.testing.assert_array_equal(engine(np.array([1, 4, 2])), [0, 3, 1])
