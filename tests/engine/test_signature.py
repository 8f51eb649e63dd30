from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineSpec, open_engine
from engine.errors import ConfigError
from engine.signature import TensorSpec, batch_flags, bind_sizes, fits, input_order

CKPT = Path("m.onnx")


@pytest.mark.parametrize(
    ("shapes", "flags"),
    [
        ([], []),
        ([[]], [False]),
        ([[], []], [False, False]),
        ([["N", 3, 32, 32]], [True]),
        ([[16, 3, 32, 32]], [True]),
        ([["N", 4], ["N", 5]], [True, True]),
        ([["N", 4], ["M", 5]], [True, False]),
        ([["batch", "seq"], ["seq", 5]], [True, False]),
        ([["N", 4], []], [True, False]),
        ([[], ["N", 4]], [False, True]),
        ([[7, 4], ["N", 4]], [False, True]),  # a fixed input beside a dynamic one is no batch
        ([[16, 4], [16, 9], [4]], [True, True, False]),
        ([[16, 4], [8, 4]], [True, False]),
        # names that exporters make up: two different ones may still be the same batch
        ([["unk__6", 4], ["unk__7", 4]], [True, True]),
        ([["s0", 4], ["s77", 4]], [True, True]),
        ([["ids_dynamic_axes_1", 4], ["mask_dynamic_axes_1", 4]], [True, True]),
        ([["p2o.DynamicDimension.0", 4], ["p2o.DynamicDimension.5", 4]], [True, True]),
        ([[None, 4], [None, 4]], [True, True]),
        ([["batch", 4], [None, 4]], [True, True]),
        ([["batch", 4], ["classes", 4]], [True, False]),
        ([[0, 4]], [False]),  # nothing to split
        ([[0, 4], [0, 4]], [False, False]),
        ([[0, 4], [16, 4], [16]], [False, True, True]),
        ([[0, 4], ["N", 4]], [False, True]),
        ([["size", 4], ["batch", 4]], [True, False]),  # "size" only begins like s0
    ],
)
def test_which_inputs_are_batched(shapes: list[list[int | str | None]], flags: list[bool]) -> None:
    assert batch_flags(shapes) == flags


def test_input_size_decides_for_symbols_that_differ() -> None:
    shapes = [["a", 4], ["b", 4], ["c"], []]
    assert batch_flags(shapes, [(16, 4), (16, 4), (3,), ()]) == [True, True, False, False]


def test_input_size_of_too_low_rank_is_not_an_index_error() -> None:
    assert batch_flags([["a", 4], ["b", 4]], [(), (1, 4)]) == [True, False]


def test_input_order() -> None:
    assert input_order(["a", "b", "c"], [], CKPT) == [0, 1, 2]
    assert input_order(["a", "b", "c"], ["c", "a", "b"], CKPT) == [2, 0, 1]
    with pytest.raises(ConfigError, match=r"m\.onnx: input_name a, x does not match the model's inputs: a, b"):
        input_order(["a", "b"], ["a", "x"], CKPT)
    with pytest.raises(ConfigError, match="does not match"):
        input_order(["a", "b"], ["a", "a"], CKPT)


def test_a_wrong_name_for_the_only_input_warns() -> None:
    with pytest.warns(UserWarning, match="input_name vgg16 is not the model's; its only input 'input' is used"):
        assert input_order(["input"], ["vgg16"], CKPT) == [0]


def spec(*shape: int | None, batched: bool = True) -> TensorSpec:
    return TensorSpec("x", np.dtype(np.float32), shape, batched)


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
    [(spec(None, None), (2, 0)), (spec(None, 3), (0, 3)), (spec(4, 3), (0, 3)), (spec(None, 0), (2, 3))],
)
def test_a_size_is_0_only_where_the_model_says_so(tensor: TensorSpec, size: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="does not fit input 'x'"):
        bind_sizes([tensor], [size], CKPT)
    assert bind_sizes([spec(None, 0), spec(0, 3, batched=False)], [(2, 0), (0, 3)], CKPT)[1].shape == (0, 3)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
def test_a_model_with_an_empty_input_and_a_dynamic_one_can_be_opened(target: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,0] e, float[N,K] x) => (float[N,M] y) { y = Concat<axis=1>(e, x) }")
    spec = EngineSpec(path, 2, dtype="float32", divided=False, input_size=((2, 0), (2, 3)))
    with open_engine(target, spec) as engine:
        assert np.asarray(engine([np.zeros((2, 0), np.float32), np.ones((2, 3), np.float32)])).shape == (2, 3)


def test_unbatched_leading_dimension_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[5, 2\] does not fit input 'x' of shape \[7, 2\]"):
        bind_sizes([spec(7, 2, batched=False)], [(5, 2)], CKPT)


@pytest.mark.parametrize(
    ("shape", "tensor", "fit"),
    [
        ((5, 3), spec(None, 3), True),
        ((5, 3), spec(16, 3), True),  # any batch
        ((5, 4), spec(16, 3), False),
        ((5,), spec(16, 3), False),
        ((0, 3), spec(16, 3), False),
        ((5, 3), spec(16, 3, batched=False), False),
        ((5, 3), spec(None, 3, batched=False), True),
        ((), spec(batched=False), True),
        ((1,), spec(batched=False), False),
    ],
)
def test_fits(shape: tuple[int, ...], tensor: TensorSpec, fit: bool) -> None:
    assert fits(shape, tensor) is fit
