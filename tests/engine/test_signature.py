from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineSpec, open_engine
from engine.signature import TensorSpec, batch_axes, bind_sizes, input_order
from tecoinfer_modelzoo.errors import ConfigError

CKPT = Path("m.onnx")


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ([], []),
        ([[]], [None]),
        ([[], []], [None, None]),
        ([["N", 3, 32, 32]], [0]),
        ([[16, 3, 32, 32]], [0]),
        ([["N", 4], ["N", 5]], [0, 0]),
        ([["N", 4], ["M", 5]], [0, None]),
        ([["batch", "seq"], ["seq", 5]], [0, None]),
        ([["N", 4], []], [0, None]),
        ([[], ["N", 4]], [None, 0]),
        ([[7, 4], ["N", 4]], [None, 0]),  # a fixed input next to a dynamic one is not the batch
        ([[16, 4], [16, 9], [4]], [0, 0, None]),
        ([[16, 4], [8, 4]], [0, None]),
        # names that exporters make up: two different ones may still be the same batch
        ([["unk__6", 4], ["unk__7", 4]], [0, 0]),
        ([["s0", 4], ["s77", 4]], [0, 0]),
        ([["ids_dynamic_axes_1", 4], ["mask_dynamic_axes_1", 4]], [0, 0]),
        ([["p2o.DynamicDimension.0", 4], ["p2o.DynamicDimension.5", 4]], [0, 0]),
        ([[None, 4], [None, 4]], [0, 0]),
        ([["batch", 4], [None, 4]], [0, 0]),
        ([["batch", 4], ["classes", 4]], [0, None]),
        ([[0, 4]], [None]),  # nothing to split
        ([[0, 4], [0, 4]], [None, None]),
        ([[0, 4], [16, 4], [16]], [None, 0, 0]),
        ([[0, 4], ["N", 4]], [None, 0]),
        ([["size", 4], ["other", 4]], [0, None]),  # "size" only begins like s0
        # a symbol that is sure to be the batch, wherever it is
        ([["size", 4], ["batch", 4]], [None, 0]),
        ([["T", "batch", 4], [1, "batch", 8]], [1, 1]),
        ([["batch", 512], [2, "batch", 128], []], [0, 1, None]),
        ([[5, "batch_size", 4]], [1]),
        ([[None, 4], ["batch", 4], [3]], [0, 0, None]),
        ([["T", 1, 4]], [0]),  # shapes alone do not tell
    ],
)
def test_which_inputs_are_batched(shapes: list[list[int | str | None]], axes: list[int | None]) -> None:
    assert batch_axes(shapes) == axes


def test_input_size_decides_for_symbols_that_differ() -> None:
    shapes = [["a", 4], ["b", 4], ["c"], []]
    assert batch_axes(shapes, [(16, 4), (16, 4), (3,), ()]) == [0, 0, None, None]


def test_input_size_of_too_low_rank_is_not_an_index_error() -> None:
    assert batch_axes([["a", 4], ["b", 4]], [(), (1, 4)]) == [0, None]


def test_input_order() -> None:
    assert input_order(["a", "b", "c"], [], CKPT) == [0, 1, 2]
    assert input_order(["a", "b", "c"], ["c", "a", "b"], CKPT) == [2, 0, 1]
    with pytest.raises(ConfigError, match=r"m\.onnx: input_name x, a.*a, b"):
        input_order(["a", "b"], ["x", "a"], CKPT)
    with pytest.raises(ConfigError, match="does not match"):
        input_order(["a", "b"], ["a", "a"], CKPT)


def test_a_wrong_name_for_the_only_input_warns() -> None:
    with pytest.warns(UserWarning, match=r"input_name vgg16 .*'input' is used"):
        assert input_order(["input"], ["vgg16"], CKPT) == [0]


def spec(*shape: int | None, batched: bool = True) -> TensorSpec:
    return TensorSpec("x", np.dtype(np.float32), shape, 0 if batched else None)


def test_bind_sizes_fills_all_but_the_batch() -> None:
    bound = bind_sizes([spec(None, 3, None, None), spec(None, 2, batched=False)], [(16, 3, 8, 9), (5, 2)], CKPT)
    assert [tensor.shape for tensor in bound] == [(None, 3, 8, 9), (5, 2)]
    assert bind_sizes([spec(16, 3)], [(4, 3)], CKPT)[0].shape == (16, 3)  # a static batch stays what it is


@pytest.mark.parametrize("size", [(), (16,), (16, 4, 8), (16, 3, 8, 8), (16, 4, 8, 8, 1)])
def test_bind_sizes_refuses(size: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        bind_sizes([spec(None, 4, None, None)], [size], CKPT)
    assert str(caught.value) == f"m.onnx: input_size {list(size)} does not fit input 'x' of shape [N, 4, N, N]"


@pytest.mark.parametrize(
    ("tensor", "size"),
    [(spec(None, 2), (2, 0)), (spec(None, 3), (0, 3)), (spec(4, 3), (0, 3)), (spec(None, 0), (2, 3))],
)
def test_a_batch_or_a_declared_size_is_not_bound_to_0(tensor: TensorSpec, size: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="does not fit input 'x'"):
        bind_sizes([tensor], [size], CKPT)
    assert bind_sizes([spec(None, 0), spec(0, 3, batched=False)], [(2, 0), (0, 3)], CKPT)[1].shape == (0, 3)
    assert bind_sizes([spec(None, None)], [(2, 0)], CKPT)[0].shape == (None, 0)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
def test_a_model_with_an_empty_input_and_a_dynamic_one_can_be_opened(target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,0] e, float[N,K] x) => (float[N,M] y) { y = Concat<axis=1>(e, x) }")
    spec = EngineSpec(path, 2, dtype="float32", divided=False, input_size=((2, 0), (2, 3)))
    with open_engine(target, spec) as engine:
        assert np.asarray(engine([np.zeros((2, 0), np.float32), np.ones((2, 3), np.float32)])).shape == (2, 3)


def test_unbatched_leading_dimension_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[5, 2\] .*'x' of shape \[7, 2\]"):
        bind_sizes([spec(7, 2, batched=False)], [(5, 2)], CKPT)
