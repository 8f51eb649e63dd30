"""Random graphs with counts and indices: the card and a float16 file give the results of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings, strategies as st

from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.sdaa.float16 import float16_storage

Array = np.ndarray[Any, np.dtype[Any]]
EXAMPLES = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
ROWS = 3
COLUMNS = (17, 130, 2500, 9000, 70000)


class Graph:
    """A graph under way: lines of text, and the whole-number floats so far, each of shape (rows, k)."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: list[str] = []
        self.wholes: list[str] = []
        self.places: list[str] = []
        self.outputs: list[str] = []

    def new(self, text: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def held(self, value: float, kind: str = "float") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(f"{kind} {name} = {{{value}}}")
        return name


def born(graph: Graph, draw: Any, columns: int) -> str:
    """Add whole numbers, as a float, that the model makes itself; ``real`` are activations (rows, columns)."""
    kind = draw(
        st.sampled_from(["ArgMax", "ArgMin", "TopK", "NonZero", "Range", "CumSum", "Shape", "ReduceSum", "ids"])
    )
    one, axis = graph.held(1, "int64"), graph.held(1, "int64")
    if kind in ("ArgMax", "ArgMin"):
        found = graph.new(f"{kind}<axis = 1>(real)")
    elif kind == "TopK":
        count = draw(st.integers(1, 3))
        k = graph.new(f"Constant<value_ints = [{count}]>()")
        found = f"t{len(graph.lines)}"
        graph.lines.append(f"{found}_values, {found} = TopK(real, {k})")
    elif kind == "NonZero":
        most = graph.new("ReduceMax<axes = [1]>(real)")
        hit = graph.new(f"Equal(real, {most})")
        both = graph.new(f"NonZero({hit})")
        found = graph.new(f"Gather<axis = 0>({both}, {one})")
        found = graph.new(f"Unsqueeze({found}, {graph.new('Constant<value_ints = [0]>()')})")
    elif kind == "Range":
        count = graph.held(draw(st.sampled_from([5, 2300, 40000])), "int64")
        found = graph.new(f"Range({graph.held(0, 'int64')}, {count}, {one})")
        found = graph.new(f"Unsqueeze({found}, {graph.new('Constant<value_ints = [0]>()')})")
    elif kind == "CumSum":
        low = graph.new(f"Cast<to = 1>({graph.new(f'Greater(real, {graph.held(0.3125)})')})")
        return graph.new(f"CumSum({low}, {axis})")
    elif kind == "Shape":
        found = graph.new(f"Unsqueeze({graph.new('Shape(real)')}, {graph.new('Constant<value_ints = [0]>()')})")
    elif kind == "ReduceSum":
        low = graph.new(f"Cast<to = 1>({graph.new(f'Greater(real, {graph.held(0.3125)})')})")
        axes = graph.new("Constant<value_ints = [1]>()")
        return graph.new(f"ReduceSum<keepdims = 1>({low}, {axes})")
    else:
        return graph.new(f"Floor({graph.new(f'Mul(ids, {graph.held(draw(st.sampled_from([1.0, 0.5])))})')})")
    return graph.new(f"Cast<to = 1>({found})")


def stepped(graph: Graph, draw: Any, name: str) -> str:
    """Add a step of arithmetic that gives whole numbers, or multiples of them."""
    side = draw(st.sampled_from([3.0, 64.0, 128.0, 1000.0]))
    kind = draw(st.sampled_from(["mod", "row", "column", "offset", "stride", "whole", "difference", "moved", "same"]))
    if kind == "mod":
        return graph.new(f"Mod<fmod = 1>({name}, {graph.held(side)})")
    if kind in ("row", "column"):
        row = graph.new(f"Floor({graph.new(f'Div({name}, {graph.held(side)})')})")
        if kind == "row":
            return row
        return graph.new(f"Sub({name}, {graph.new(f'Mul({row}, {graph.held(side)})')})")
    if kind == "offset":
        return graph.new(f"Add({name}, {graph.held(draw(st.sampled_from([0.5, -0.5, 1.0, 3000.0])))})")
    if kind == "stride":
        return graph.new(f"Mul({name}, {graph.held(draw(st.sampled_from([4.0, 8.0, 0.25])))})")
    if kind == "whole":
        return graph.new(f"Cast<to = 1>({graph.new(f'Cast<to = 7>({name})')})")
    if kind == "difference":
        return graph.new(f"Sub({name}, {graph.new(f'ReduceMin<axes = [1]>({name})')})")
    if kind == "moved":
        return graph.new(f"Transpose<perm = [0, 1]>({graph.new(f'Identity({name})')})")
    return graph.new(f"Max({name}, {name})")


@st.composite
def models(draw: Any) -> tuple[onnx.ModelProto, int]:
    columns = draw(st.sampled_from(COLUMNS))
    graph = Graph()
    graph.lines.append("real = Relu(x)")
    for _ in range(draw(st.integers(1, 3))):
        name = born(graph, draw, columns)
        for _ in range(draw(st.integers(0, 4))):
            name = stepped(graph, draw, name)
        if draw(st.booleans()):
            name = graph.new(f"Add({name}, offset)")  # a coordinate
            if draw(st.booleans()):
                name = graph.new(f"Mul({name}, {graph.held(draw(st.sampled_from([2.0, 0.5])))})")
        graph.outputs.append(name)
    ends = ", ".join(f"float[a{i}, b{i}] {name}" if name else "" for i, name in enumerate(dict.fromkeys(graph.outputs)))
    constants = f"<{', '.join(graph.constants)}>" if graph.constants else ""
    body = "\n".join(graph.lines)
    inputs = f"float[{ROWS},{columns}] x, float[{ROWS},1] ids, float[{ROWS},1] offset"
    text = f"g ({inputs}) => ({ends}) {constants} {{\n{body}\n}}"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    return model, columns


def run(model: onnx.ModelProto, named: dict[str, Array]) -> list[Array]:
    session = HostSession(model, threads=1)
    with np.errstate(over="ignore"):  # for unused ids
        return session.run([named[one.name].astype(one.dtype) for one in session.inputs])


@given(drawn=models(), seed=st.integers(0, 2**32 - 1))
@settings(EXAMPLES, max_examples=60)
def test_counts_indices_and_coordinates_equal_float32(drawn: tuple[onnx.ModelProto, int], seed: int) -> None:
    model, columns = drawn
    rng = np.random.default_rng(seed)
    # float16 holds the activations, so that the same element is the largest; offsets are fractions it holds as well
    x = rng.permutation(ROWS * columns).reshape(ROWS, columns) / 2.0 ** np.ceil(np.log2(ROWS * columns))
    x = x.astype(np.float16).astype(np.float32)
    ids = rng.integers(0, 100_000, (ROWS, 1)).astype(np.float32)
    offset = (rng.integers(-128, 128, (ROWS, 1)) / 256).astype(np.float32)
    named = {"x": x, "ids": ids, "offset": offset}
    want = run(model, named)
    for form in (float16_storage(model), to_float16(model)):
        for got, right in zip(run(form, named), want, strict=True):
            np.testing.assert_array_equal(got, right)
