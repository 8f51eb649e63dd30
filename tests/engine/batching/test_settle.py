"""Sizes that follow from the inputs' shapes are those that ONNX Runtime has when it runs the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from text_models import WORDS, encoder

from engine.backends import HostSession
from engine.batching.settle import _shapes, has_open_sizes, settled
from engine.onnx import bind_shapes, infer_shapes
from engine.passes import PassOptions
from engine.sdaa.cost import shard_work


def bound(path: Path, batch: int, length: int) -> onnx.ModelProto:
    return bind_shapes(onnx.load(path), {"ids": (batch, length), "mask": (batch, length)})


def all_shapes(model: onnx.ModelProto, feed: list[np.ndarray]) -> dict[str, tuple[int, ...]]:
    """Return the shape of everything that nodes write, as ONNX Runtime computes it."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:], shown.graph.value_info[:]
    names = [name for node in shown.graph.node for name in node.output]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    outputs = HostSession(shown, optimised=False).run(feed)
    return {name: array.shape for name, array in zip(names, outputs, strict=True)}


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 16), (3, 7)])
def test_sizes_are_those_of_a_run(batch: int, length: int, tmp_path: Path) -> None:
    path = encoder(tmp_path / "m.onnx", layers=3)
    model = bound(path, batch, length)
    assert has_open_sizes(infer_shapes(model))
    before = model.SerializeToString()
    found = settled(infer_shapes(model))
    assert model.SerializeToString() == before
    assert not has_open_sizes(found)
    ids = np.arange(batch * length).reshape(batch, length) % WORDS
    ran = all_shapes(model, [ids, np.ones_like(ids)])
    known = _shapes(found.graph)
    assert {name: known[name] for name in ran} == ran
    assert [node.name for node in found.graph.node] == [node.name for node in model.graph.node]
    onnx.checker.check_model(found, full_check=True)


def test_memory_and_arithmetic_are_those_of_the_default_pass(tmp_path: Path) -> None:
    from engine.passes import apply_passes
    from engine.spec import find_pass

    model = bound(encoder(tmp_path / "m.onnx"), 2, 32)
    passed = apply_passes(model, PassOptions.load(find_pass("default_pass")))
    ours, theirs = shard_work(model, True), shard_work(passed, True)
    assert all(kernel.known for kernel in ours.kernels)
    assert ours.activations == theirs.activations > 0
    assert sum(kernel.flops for kernel in ours.kernels) == sum(kernel.flops for kernel in theirs.kernels)


OPEN = """<ir_version: 9, opset_import: ["" : 17]>
g (float[2,3] x) => (float[N] y) { i = NonZero(x) t = Transpose(i) y = GatherND(x, t) }"""
PARTLY = """<ir_version: 9, opset_import: ["" : 17]>
g (float[2,3] x) => (float[6] z, int64[2,N] i) <int64[1] flat = {-1}> {
 s = Shape(x) e = ReduceProd<keepdims=1>(s) z = Reshape(x, e) i = NonZero(z) }"""


def test_sizes_that_depend_on_data_stay_open() -> None:
    found = settled(infer_shapes(onnx.parser.parse_model(OPEN)))
    assert has_open_sizes(found)
    assert "y" not in _shapes(found.graph)
    known = _shapes(settled(infer_shapes(onnx.parser.parse_model(PARTLY))).graph)
    assert known["z"] == (6,)
    assert "i" not in known


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("s = Shape<start=1>(x) y = ConstantOfShape(s)", (3,)),
        ("s = Shape<start=-1>(x) y = ConstantOfShape(s)", (3,)),
        ("s = Shape<start=0,end=-1>(x) y = ConstantOfShape(s)", (2,)),
        ("s = Size(x) o = Constant<value_ints=[1]>() r = Reshape(s, o) y = Expand(x0, r)", (6,)),
        ("s = Shape(x) c = Cast<to=1>(s) f = Mul(c, half) i = Cast<to=7>(f) y = ConstantOfShape(i)", (1, 1)),
    ],
)
def test_operators_that_sizes_are_computed_with(text: str, shape: tuple[int, ...]) -> None:
    dims = ",".join("ABC"[: len(shape)])
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x) => (float[{dims}] y) '
        f"<float half = {{0.5}}, float[1] x0 = {{1}}> {{ {text} }}"
    )
    assert _shapes(settled(infer_shapes(model)).graph)["y"] == shape
