"""Large weights held apart from the message: which ones, the same values, and damaged files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from support import SaveOnnx

from engine import ModelError
from engine.onnx import apart, load_model
from engine.onnx.apart import factors_of, joined, origin
from engine.onnx.load import load_apart

TEXT = """
g (float[N,3,8,8] x, int64[N] i) => (float[N,4] y, float[16,64] w) {
  a = Conv<kernel_shape = [3,3], pads = [1,1,1,1]>(x, k, b)
  f = Flatten(a)
  m = MatMul(f, m1)
  g = Gemm(m, m2, c)
  t = Gather(table, i)
  s = Add(g, t)
  masked = Where(mask, fill, s)
  scaled = Mul(masked, both)
  p = MatMul(scaled, both)
  one = ReduceMean<axes = [1]>(p)
  outer = MatMul(one, row)
  q = MatMul(outer, m3)
  cond = Constant<value = bool {1}>()
  branch = If(cond) <
    then_branch = g1 () => (float[N,4] z) { z = MatMul(q, inner) },
    else_branch = g2 () => (float[N,4] z2) { z2 = Slice(q, zero, four, last) }
  >
  y = Identity(branch)
  w = Identity(shown)
}
"""
SHAPES: dict[str, tuple[int, ...]] = {
    "k": (8, 3, 3, 3),
    "b": (8,),
    "m1": (512, 64),
    "m2": (64, 64),
    "c": (64,),
    "table": (50, 64),
    "fill": (64, 64),
    "both": (64, 64),
    "row": (1, 64),
    "m3": (64, 64),
    "inner": (64, 4),
    "spare": (64, 64),
    "shown": (16, 64),
}
FACTORS = {"k", "m1", "m2", "m3"}
Change = Callable[[ModelProto], object]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold weights of a few hundred bytes apart."""
    monkeypatch.setattr(apart, "MANY", 2**12)
    monkeypatch.setattr(apart, "LARGE", 2**8)


def model(kind: type[np.generic] = np.float32) -> ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {TEXT}')
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        made.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(shape).astype(kind), name))
    made.graph.initializer.append(numpy_helper.from_array(rng.random((64, 64)) < 0.5, "mask"))
    for name, value in (("zero", 0), ("four", 4), ("last", 1)):
        made.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    return made


def named(made: ModelProto, name: str) -> TensorProto:
    found: TensorProto = next(tensor for tensor in made.graph.initializer if tensor.name == name)
    return found


def in_floats(made: ModelProto) -> None:
    tensor = named(made, "m1")
    tensor.CopyFrom(helper.make_tensor("m1", TensorProto.FLOAT, tensor.dims, numpy_helper.to_array(tensor).ravel()))


def as_input(made: ModelProto) -> None:
    made.graph.input.append(helper.make_tensor_value_info("m1", TensorProto.FLOAT, [512, 64]))


def as_output(made: ModelProto) -> None:
    made.graph.output.append(helper.make_tensor_value_info("m1", TensorProto.FLOAT, [512, 64]))


def in_another_domain(made: ModelProto) -> None:
    next(node for node in made.graph.node if "m1" in node.input).domain = "own"


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_factors_are_held_apart_and_the_model_is_the_same(
    kind: type[np.generic], external: bool, tmp_path: Path
) -> None:
    made, path = model(kind), tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=external, location="m.data", size_threshold=0)
    light, weights = load_apart(path)
    assert weights.keys() == FACTORS
    for name, values in weights.items():
        assert origin(named(light, name)) == name
        assert not named(light, name).HasField("raw_data")
        assert (values.dtype, values.shape, values.flags.writeable) == (np.dtype(kind), SHAPES[name], True)
    whole, same = load_model(path), joined(light, weights)
    for tensor in (*whole.graph.initializer, *same.graph.initializer):
        tensor.ClearField("data_location")
    assert same == whole
    assert all(not origin(tensor) for tensor in light.graph.initializer if tensor.name not in FACTORS)


@pytest.mark.parametrize("change", [in_floats, as_input, as_output, in_another_domain])
def test_other_weights_stay_in_the_model(change: Change, save_onnx: SaveOnnx) -> None:
    made = model()
    change(made)
    path = save_onnx(made)
    light, weights = load_apart(path)
    assert weights.keys() == FACTORS - {"m1"}
    assert joined(light, weights) == load_model(path)


def test_few_weights_stay_in_the_model(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_onnx(model())
    whole = load_model(path)
    for many in (4 * 512 * 64 + 4 * 2 * 64 * 64 + 4 * 216 + 1, 2**30):
        monkeypatch.setattr(apart, "MANY", many)
        assert load_apart(path) == (whole, {})
    monkeypatch.setattr(apart, "MANY", 4 * 512 * 64 + 4 * 2 * 64 * 64 + 4 * 216)
    assert load_apart(path)[1].keys() == FACTORS


def test_functions_keep_what_they_are_called_with(save_onnx: SaveOnnx) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[N,64] x) => (float[N,64] y) { h = own.scaled(x, m2) y = MatMul(h, m3) }
    <domain: "own", opset_import: ["" : 17]> scaled (a, b) => (c) { d = Abs(b) c = MatMul(a, d) }"""
    made = onnx.parser.parse_model(text)
    for name in ("m2", "m3"):
        made.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), name))
    assert factors_of(made.graph) == {"m3"}
    path = save_onnx(made)
    assert joined(*load_apart(path)) == load_model(path)


@pytest.mark.parametrize("part", [0.2, 0.6, 0.98, 0.9999])
def test_a_file_cut_short_is_refused_as_before(part: float, save_onnx: SaveOnnx) -> None:
    path = save_onnx(model())
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(ModelError) as whole:
        load_model(path)
    with pytest.raises(ModelError) as light:
        load_apart(path)
    assert str(light.value) == str(whole.value)


def test_a_wrong_size_is_refused_as_before(save_onnx: SaveOnnx) -> None:
    made = model()
    named(made, "m1").dims[0] = 511
    path = save_onnx(made)
    with pytest.raises(ModelError, match="32768 of the 32704 numbers"):
        load_apart(path)


def test_a_file_in_two_pieces_is_merged_by_the_parser(tmp_path: Path) -> None:
    """Two graphs in one message are merged, and their weights are in two places."""
    made, path = model(), tmp_path / "m.onnx"
    first, second = ModelProto(), ModelProto()
    first.CopyFrom(made)
    del first.graph.initializer[4:]
    second.graph.initializer.extend(made.graph.initializer[4:])
    path.write_bytes(first.SerializeToString() + second.SerializeToString())
    whole = load_model(path)
    assert len(whole.graph.initializer) == len(made.graph.initializer)
    assert load_apart(path) == (whole, {})


@pytest.mark.parametrize("external", [False, True])
def test_a_file_that_shrinks_while_it_is_read(external: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path, save_as_external_data=external, location="m.data", size_threshold=0)
    data = tmp_path / "m.data" if external else path
    with pytest.raises(ModelError, match=r"m\.onnx.* cut short"):
        load_apart(path, lambda _: os.truncate(data, data.stat().st_size // 3))


def test_a_missing_external_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"external file 'm\.data' of weights 'k' is missing"):
        load_apart(path)
