"""Passes under the names in scripts for the T1: their effect on graphs and simulated times."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto
from pass_models import batch_norm, build, floats, node, ops
from planted import resnet50

from engine.base import PASS_PATH
from engine.onnx.shapes import bind_shapes
from engine.passes import _library
from engine.passes.options import PassOptions
from engine.passes.resnet import resnet_pass
from engine.passes.rules.gain import compute_cost
from engine.passes.runner import apply_passes
from engine.passes.yolov5m.focus import fold_focus

CORNERS = [(0, 0), (1, 0), (0, 1), (1, 1)]
END = 2**63 - 1


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def options(name: str) -> PassOptions:
    return PassOptions.load(Path(name))


def focus(
    corners: list[tuple[int, int]] = CORNERS,
    kernel: int = 3,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    end: int = END,
    step: int = 2,
    one_slice: bool = False,
    axes: tuple[int, int] = (2, 3),
    outputs: tuple[str, ...] = ("y",),
    size: tuple[Any, ...] = ("batch", 3, 16, 24),
    kind: int = TensorProto.FLOAT,
    **conv: Any,
) -> onnx.ModelProto:
    """Return YOLOv5's Focus: the corners of 2 x 2 pixel blocks as channels, and a convolution."""
    group = conv.get("group", 1)
    dtype = np.float16 if kind == TensorProto.FLOAT16 else np.float32
    weights = {"w": floats(8, 12 // group, kernel, kernel, dtype=dtype), "b": floats(8, dtype=dtype)}
    weights |= {"end": longs(end), "step": longs(step), "ends": longs(end, end), "steps": longs(step, step)}
    weights |= {f"axis{i}": longs(axis) for i, axis in enumerate(axes)} | {"axes": longs(*axes)}
    weights |= {f"from{i}": longs(i) for i in range(3)}
    nodes = []
    for i, (dy, dx) in enumerate(corners):
        if one_slice:
            weights[f"at{i}"] = longs(dy, dx)
            nodes.append(node("Slice", ["x", f"at{i}", "ends", "axes", "steps"], f"p{i}"))
        else:
            nodes.append(node("Slice", ["x", f"from{dy}", "end", "axis0", "step"], f"r{i}"))
            nodes.append(node("Slice", [f"r{i}", f"from{dx}", "end", "axis1", "step"], f"p{i}"))
    nodes.append(node("Concat", [f"p{i}" for i in range(len(corners))], "f", axis=1))
    padding = {"pads": list(pads)} if pads else {}
    nodes.append(node("Conv", ["f", "w", "b"], "y", **padding, **conv))
    used = {name for one in nodes for name in one.input}
    weights = {name: array for name, array in weights.items() if name in used}
    return build(nodes, weights, list(size), outputs, opset=13, kind=kind)


def checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model after ``fold_focus``, compared with the original."""

    def use_passes(given_model: onnx.ModelProto) -> onnx.ModelProto:
        return _library.edit(given_model, lambda graph: (_library.tidy(graph), fold_focus(graph))[0], "test")

    return apply_passes(model, PassOptions(use_passes=use_passes), input_shapes={"x": (2, 3, 16, 24)})


def test_focus_becomes_one_convolution() -> None:
    @settings(max_examples=12, deadline=None, database=None)
    @given(
        st.permutations(CORNERS),
        st.sampled_from([1, 2, 3, 5]),
        st.tuples(*[st.integers(0, 2)] * 4),
        st.booleans(),
        st.sampled_from([(2, 3), (-2, -1)]),
        st.sampled_from([END, 2**31 - 1, 24]),
    )
    def one(
        corners: list[tuple[int, int]],
        kernel: int,
        pads: tuple[int, ...],
        one_slice: bool,
        axes: tuple[int, int],
        end: int,
    ) -> None:
        after = checked(focus(corners, kernel, pads, end, one_slice=one_slice, axes=axes))
        assert ops(after) == {"Conv": 1}
        assert {name: list(value.ints) for value in after.graph.node[0].attribute if (name := value.name)} == {
            "pads": [2 * pad for pad in pads],
            "strides": [2, 2],
            "kernel_shape": [2 * kernel] * 2,
        }

    one()


def test_focus_in_float16_and_with_dynamic_sizes() -> None:
    assert ops(checked(focus(kind=TensorProto.FLOAT16))) == {"Conv": 1}
    assert ops(checked(focus(size=("batch", 3, "height", "width")))) == {"Conv": 1}


@pytest.mark.parametrize(
    "model",
    [
        focus([(0, 0), (1, 0), (0, 1), (0, 1)]),
        focus([(0, 0), (1, 0), (0, 1), (1, 1), (1, 1)][:4], group=4),
        focus(strides=[2, 2]),
        focus(dilations=[2, 2]),
        focus(end=14, corners=[(0, 0), (0, 1), (1, 0), (1, 1)]),
        focus(end=14, size=("batch", 3, "height", "width")),
        focus(step=4),
        focus(outputs=("y", "f")),
        focus(auto_pad="SAME_UPPER", pads=()),
    ],
    ids=["a corner twice", "groups", "stride", "dilation", "not to the end", "an open end", "step", "read", "auto_pad"],
)
def test_similar_graphs_are_not_folded(model: onnx.ModelProto) -> None:
    assert ops(checked(model))["Concat"] == 1


def yolo(opset: int = 12) -> onnx.ModelProto:
    """Return a network like YOLOv5: Focus, Conv-BatchNorm-SiLU, SPP, an upsampled path, and a head of anchors."""
    conv = {"w0": floats(8, 12, 3, 3), "w1": floats(8, 8, 1, 1), "b1": floats(8), "w2": floats(8, 24, 1, 1)}
    conv |= {"w3": floats(18, 16, 1, 1), "b3": floats(18)}
    weights = {name: array * np.float32(0.2) for name, array in conv.items()} | batch_norm(8)
    weights |= {"end": longs(END), "step": longs(2), "from0": longs(0), "from1": longs(1), "a2": longs(2)}
    weights |= {"a3": longs(3), "scales": np.array([1, 1, 2, 2], np.float32), "head": longs(0, 3, 6, 8, 12)}
    weights["roi"] = np.zeros(0, np.float32)
    nodes = []
    for i, (dy, dx) in enumerate(CORNERS):
        nodes.append(node("Slice", ["x", f"from{dy}", "end", "a2", "step"], f"r{i}"))
        nodes.append(node("Slice", [f"r{i}", f"from{dx}", "end", "a3", "step"], f"p{i}"))
    silu = lambda x, y: [node("Sigmoid", [x], f"{x}_gate"), node("Mul", [x, f"{x}_gate"], y)]  # noqa: E731
    nodes += [
        node("Concat", [f"p{i}" for i in range(4)], "f", axis=1),
        node("Conv", ["f", "w0"], "c0", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c0", "bn_gamma", "bn_beta", "bn_mean", "bn_var"], "n0"),
        *silu("n0", "s0"),
        node("Conv", ["s0", "w1", "b1"], "c1"),
        *silu("c1", "s1"),
        *(node("MaxPool", ["s1"], f"m{k}", kernel_shape=[k, k], pads=[k // 2] * 4) for k in (5, 9)),
        node("Concat", ["s1", "m5", "m9"], "spp", axis=1),
        node("Conv", ["spp", "w2"], "c2", strides=[2, 2]),
        *silu("c2", "s2"),
        node("Resize", ["s2", "roi", "scales"], "up", mode="nearest"),
        node("Concat", ["up", "s1"], "cat", axis=1),
        node("Conv", ["cat", "w3", "b3"], "c3"),
        node("Reshape", ["c3", "head"], "h"),
        node("Transpose", ["h"], "t", perm=[0, 1, 3, 4, 2]),
        node("Sigmoid", ["t"], "y"),
    ]
    return build(nodes, weights, ["batch", 3, 16, 24], opset=opset)


@pytest.mark.parametrize("opset", [11, 12, 17])
def test_a_yolov5(opset: int) -> None:
    model = yolo(opset)
    shapes = {"x": (2, 3, 16, 24)}
    after = apply_passes(model, options("yolov5m/yolov5_pass.py"), input_shapes=shapes)
    found = ops(after)
    assert (found["Slice"], found["BatchNormalization"], found["Mul"], found["Swish"]) == (0, 0, 0, 3)
    assert (found["Conv"], found["Concat"], found["Sigmoid"]) == (4, 2, 1)
    (kernel,) = {tuple(a.ints) for n in after.graph.node[:1] for a in n.attribute if a.name == "kernel_shape"}
    assert kernel == (6, 6)
    before_cost, after_cost = (compute_cost(bind_shapes(each, shapes)) for each in (model, after))
    plain = compute_cost(bind_shapes(resnet_pass.use_passes(model), shapes))
    # Focus: six slices after merging duplicates, and their Concat; SiLU: three.
    assert len(plain.kernels) - len(after_cost.kernels) == 6 + 1 + 3
    assert after_cost.compute < plain.compute <= before_cost.compute


def test_a_yolov5_whose_opset_cannot_be_raised_keeps_its_sigmoids(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any, opset: int) -> None:
        if opset:
            raise _library.PassError("the model cannot be raised")

    monkeypatch.setattr(_library, "raise_opset", refuse)
    chosen = options("yolov5m/yolov5_pass.py")
    with pytest.warns(UserWarning, match=r"yolov5_pass.*Sigmoid.*raised"):
        after = apply_passes(yolo(), chosen, input_shapes={"x": (2, 3, 16, 24)})
    assert (ops(after)["Sigmoid"], ops(after)["Slice"], ops(after)["Swish"]) == (4, 0, 0)


def test_a_model_without_sigmoids_keeps_its_opset() -> None:
    model = build([node("Conv", ["x", "w"], "c"), node("Relu", ["c"], "y")], {"w": floats(4, 3, 1, 1)}, [1, 3, 4, 4])
    after = apply_passes(model, options("yolov5m/yolov5_pass.py"))
    assert after.opset_import[0].version == model.opset_import[0].version


def residual(views: bool) -> onnx.ModelProto:
    weights = {f"w{i}": floats(4, 4, 3, 3) for i in range(2)} | batch_norm(4) | {"s": longs(0, 4, -1)}
    nodes = [
        node("Conv", ["x", "w0"], "c0", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c0", "bn_gamma", "bn_beta", "bn_mean", "bn_var"], "n0"),
        node("Relu", ["n0"], "r0"),
        node("Conv", ["r0", "w1"], "c1", pads=[1, 1, 1, 1]),
        node("Add", ["c1", "x"], "a"),
    ]
    if not views:
        weights.pop("s")
        return build([*nodes, node("Relu", ["a"], "y")], weights, ["batch", 4, 8, 8])
    more = [node("Conv", ["a", "w1"], "c2"), node("Reshape", ["c2", "s"], "v"), node("Relu", ["v"], "y")]
    return build([*nodes, *more], weights, ["batch", 4, 8, 8])


def test_aliases_for_resnet() -> None:
    model, shapes = residual(views=False), {"x": (2, 4, 8, 8)}
    names = ("resnet_pass", "resnet_blocked_pass", "resnet_pass_5d", "resnet_pass_syncop")
    chosen = [options(f"resnet/{name}.py") for name in names]
    assert [each.layout for each in chosen] == ["plain", "blocked", "blocked", "plain"]
    after = [apply_passes(model, each, input_shapes=shapes) for each in chosen]
    for one, other in itertools.pairwise(after):
        assert one.SerializeToString() == other.SerializeToString()
    assert ops(after[0]) == {"Conv": 2, "Relu": 2, "Add": 1}
    plain, blocked = (compute_cost(bind_shapes(after[0], shapes), each).compute for each in chosen[:2])
    assert compute_cost(bind_shapes(after[2], shapes), chosen[2]).compute == blocked != plain


def test_the_pass_with_fewer_launches() -> None:
    model, shapes = residual(views=True), {"x": (2, 4, 8, 8)}
    plain, fewer = (
        compute_cost(bind_shapes(apply_passes(model, options(f"resnet/{name}.py"), input_shapes=shapes), shapes))
        for name in ("resnet_pass", "resnet_pass_syncop")
    )
    assert len(fewer.kernels) == len(plain.kernels) - 1
    assert fewer.compute < plain.compute


@pytest.mark.parametrize("name", ["resnet_pass_5d", "resnet_pass_syncop"])
def test_resnet50(name: str) -> None:
    model, shape = resnet50()
    shapes = {model.graph.input[0].name: (2, *shape)}
    chosen = options(f"resnet/{name}.py")
    after = apply_passes(model, chosen, input_shapes=shapes)
    assert (ops(after)["Conv"], ops(after)["BatchNormalization"]) == (53, 0)
    before_cost, after_cost = (compute_cost(bind_shapes(each, shapes), chosen) for each in (model, after))
    assert len(after_cost.kernels) <= len(before_cost.kernels)
    assert after_cost.compute <= before_cost.compute


def test_files_are_at_the_paths_of_scripts() -> None:
    for name in ("resnet/resnet_pass_5d.py", "resnet/resnet_pass_syncop.py", "yolov5m/yolov5_pass.py"):
        assert (PASS_PATH / name).is_file()
