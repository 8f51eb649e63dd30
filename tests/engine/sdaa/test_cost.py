from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from math import isfinite, prod
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from support import ROOT, SaveOnnx

from engine import EngineSpec, open_engine
from engine.onnx.shapes import bind_shapes
from engine.onnx.view import graph_inputs
from engine.sdaa.card import CARDS, load_card
from engine.sdaa.cost import ShardCost, ShardWork, price, shard_work
from engine.sdaa.engine import SdaaEngine
from tecoinfer_modelzoo.errors import DeviceOutOfMemory

sys.path.append(str(ROOT / "benchmarks"))

from benchmarks.parts import networks

LAYOUTS = ("plain", "blocked")
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    name: getattr(networks, name) for name in ("resnet", "vgg16", "mobilenet_v2", "transformer", "lstm")
}


def bound(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    (info,) = graph_inputs(model)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    return bind_shapes(model, {info.name: (batch, *shape[1:])})


def work_of(model: onnx.ModelProto, batch: int = 1, float16: bool = True) -> ShardWork:
    return shard_work(bound(model, batch), float16)


def cost_of(model: onnx.ModelProto, batch: int = 1, layout: str = "plain", float16: bool = True) -> ShardCost:
    return price(work_of(model, batch, float16), load_card(), load_card().layout(layout))


def macs(work: ShardWork) -> float:
    return sum(kernel.flops for kernel in work.kernels) / 2


# --------------------------------------------------------------------------------------------------------- known counts


@pytest.mark.parametrize(
    ("name", "giga_macs", "parameters"),
    # `_ops` (10**9 multiply-adds) and `num_params` of torchvision's weights; a folded batch norm is one bias, not two.
    [
        ("resnet", 4.089, 25_557_032 - 26_560),
        ("vgg16", 15.47, 138_357_544),
        ("mobilenet_v2", 0.301, 3_504_872 - 17_056 + 2 * 35),
    ],
)
def test_arithmetic_and_weights_are_the_published_ones(name: str, giga_macs: float, parameters: int) -> None:
    work = work_of(NETWORKS[name]())
    assert macs(work) / 1e9 == pytest.approx(giga_macs, rel=0.02)
    assert work.weights == 2 * parameters
    assert macs(work_of(NETWORKS[name](), 8)) == pytest.approx(8 * macs(work))


def test_arithmetic_of_a_transformer_and_an_lstm() -> None:
    layers, d, t = 12, 768, 128
    assert macs(work_of(networks.transformer())) == pytest.approx(layers * (12 * d * d * t + 2 * t * t * d), rel=0.01)
    width, hidden, steps = 128, 256, 50
    gates = 4 * hidden * (width + hidden) + 4 * hidden * (hidden + hidden)
    work = work_of(networks.lstm(steps, width, hidden))
    assert macs(work) == pytest.approx(steps * (gates + 10 * hidden), rel=0.01)
    assert [kernel.launches for kernel in work.kernels if kernel.op_type == "LSTM"] == [steps, steps]


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "giga_macs"),
    [
        pytest.param("inception_v3", 5.713, marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param("resnet50", 4.089, marks=pytest.mark.slow),
    ],
)
def test_an_exported_network(name: str, giga_macs: float, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not find_spec("torchvision"):
        pytest.skip("torchvision is not installed")
    from utils.export.networks.torchvision_models import import_torchvision

    size, options = (299, {"init_weights": False}) if name == "inception_v3" else (224, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        model = import_torchvision().models.get_model(name, weights=None, **options).eval()
        torch.onnx.export(model, torch.zeros(2, 3, size, size), tmp_path / "m.onnx", dynamo=False, opset_version=17)
    work = shard_work(onnx.load(tmp_path / "m.onnx"), True)
    assert macs(work) / 2e9 == pytest.approx(giga_macs, rel=0.02)
    if name == "resnet50":  # the graph of networks.py is the one torch exports
        ours = work_of(networks.resnet(), 2)
        figures = [[(k.flops, k.read, k.written) for k in w.kernels] for w in (work, ours)]
        assert figures[0] == figures[1]
        assert (work.weights, work.activations) == (ours.weights, ours.activations)


# ----------------------------------------------------------------------------------------------------------------- time


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_figures_are_sane(name: str, layout: str) -> None:
    rates = load_card().layout(layout)
    before = 0.0
    for batch in (1, 16):
        cost = cost_of(NETWORKS[name](), batch, layout)
        assert all(isfinite(s) and s > 0 for s in (*cost.kernel_seconds, cost.copy_in, cost.copy_out))
        assert cost.compute == pytest.approx(sum(cost.kernel_seconds))
        assert cost.compute > sum(k.flops for k in cost.kernels) / (rates.compute_tflop_s * 1e12)
        assert cost.compute > len(cost.kernels) * rates.launch_us * 1e-6
        assert before < cost.compute < 1
        before = cost.compute
        assert not cost.unknown


def test_larger_networks_take_longer() -> None:
    times = [cost_of(NETWORKS[name](), 16).compute for name in ("mobilenet_v2", "resnet", "vgg16")]
    assert times == sorted(times)
    assert cost_of(networks.resnet(), 16, float16=False).compute > cost_of(networks.resnet(), 16).compute


def stack(layers: int, channels: int, size: int, kernel: int) -> onnx.ModelProto:
    graph = networks.Graph(3, size, size)
    x = graph.conv("x", (3, channels), kernel)
    for _ in range(layers):
        x = graph.relu(graph.conv(x, (channels, channels), kernel))
    return graph.model(x)


sizes = st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 20), st.sampled_from([1, 3]), st.integers(1, 9))


@given(sizes, sizes, st.sampled_from(LAYOUTS), st.booleans())
@settings(max_examples=30, deadline=None)
def test_time_increases_with_work(one: tuple[int, ...], other: tuple[int, ...], layout: str, float16: bool) -> None:
    small, large = (tuple(f(pair) for pair in zip(one, other, strict=True)) for f in (min, max))
    less, more = (cost_of(stack(*s[:4]), s[4], layout, float16) for s in (small, large))
    for figure in ("copy_in", "compute", "copy_out", "weights", "activations", "io"):
        assert getattr(less, figure) <= getattr(more, figure)


def opened(path: Path, batch: int, **options: object) -> SdaaEngine:
    engine = open_engine("sdaa", EngineSpec(path, batch, simulate_only=True, **options))  # type: ignore[arg-type]
    assert isinstance(engine, SdaaEngine)
    return engine


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "transformer"])
def test_more_spa_compute_more_but_never_more_than_as_many_times(
    name: str, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, speeds = save_onnx(NETWORKS[name]()), {}
    for count in (1, 2, 3, 4, 8):
        monkeypatch.setenv("MAX_ENGINE_NUMS", str(count))
        with opened(path, 48) as engine:
            x = np.zeros((48, *(d or 0 for d in engine.inputs[0].shape[1:])), np.float16)
            engine(x)
            speeds[count] = engine.device_report()["simulated_sps"]
            assert speeds[count] == pytest.approx(48 / engine.calls[-1].latency)
    assert sorted(speeds.values()) == list(speeds.values())
    assert all(speed <= count * speeds[1] for count, speed in speeds.items())


@pytest.mark.slow
def test_the_committed_card_is_within_the_target_errors(save_onnx: SaveOnnx) -> None:
    pytest.importorskip("scipy")
    import fit_t1

    path, rows = save_onnx(networks.resnet()), fit_t1.published()
    found = fit_t1.points(path, rows, CARDS / "t1.yaml", [(0.0, 0.0)] * len(rows))
    errors = fit_t1.summary([point.errors for point in found])
    assert errors["median_all"] <= 0.08
    assert errors["worst_all"] <= 0.20
    assert fit_t1.verdict(fit_t1.fitted(rows, fit_t1.works(path, rows)), found) == []


# --------------------------------------------------------------------------------------------------------------- memory


@st.composite
def dags(draw: st.DrawFn) -> onnx.ModelProto:
    """Draw a graph of Neg, Concat and Reshape (a view) over rows of different lengths, some never read."""
    lengths, nodes = {"x": 4}, []
    for i in range(draw(st.integers(1, 12))):
        known = list(lengths)
        kind = draw(st.sampled_from(["Neg", "Concat", "Reshape"]))
        inputs = [draw(st.sampled_from(known)) for _ in range(2 if kind == "Concat" else 1)]
        lengths[f"t{i}"] = sum(lengths[name] for name in inputs)
        extra = ["shape"] if kind == "Reshape" else []
        axis = {"axis": 0} if kind == "Concat" else {}
        nodes.append(helper.make_node(kind, [*inputs, *extra], [f"t{i}"], **axis))
    nodes.append(helper.make_node("Neg", [draw(st.sampled_from(list(lengths)))], ["y"]))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [4]), ("y", None)))
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [-1])
    graph = helper.make_graph(nodes, "g", [x], [y], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def peak(model: onnx.ModelProto) -> int:
    """Work out the largest sum of live float16 activations from the definition, step by step."""
    lengths, root = {"x": 4}, {"x": "x", "shape": "shape"}
    steps: list[tuple[str, list[str]]] = []
    for node in model.graph.node:
        inputs, name = [n for n in node.input if n != "shape"], node.output[0]
        lengths[name] = sum(lengths[n] for n in inputs)
        root[name] = root[inputs[0]] if node.op_type == "Reshape" else name
        if node.op_type != "Reshape":
            steps.append((name, [root[n] for n in inputs]))
    written = {name: i for i, (name, _) in enumerate(steps) if name != "y"}

    def alive(name: str, step: int) -> bool:
        readers = [i for i, (_, inputs) in enumerate(steps) if name in inputs]
        return written[name] <= step <= max([written[name], *readers])

    return max(sum(2 * lengths[name] for name in written if alive(name, i)) for i in range(len(steps)))


@pytest.mark.slow
@given(dags())
@settings(deadline=None)
def test_activations_are_those_alive(model: onnx.ModelProto) -> None:
    work = shard_work(model, True)
    assert work.activations == peak(model)
    assert shard_work(model, False).activations == 2 * work.activations


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_takes_twice_the_memory(name: str) -> None:
    half, full = (cost_of(NETWORKS[name](), 4, float16=float16) for float16 in (True, False))
    assert full.io == 2 * half.io
    assert full.activations == 2 * half.activations
    assert full.weights == pytest.approx(2 * half.weights, rel=1e-6)  # whole numbers, such as the shapes, keep theirs


def test_buffers_for_two_calls() -> None:
    assert cost_of(networks.vgg16(), 3).io == 2 * 2 * 3 * (prod((3, 224, 224)) + 1000)


def small_card(folder: Path, megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CARDS / "t1.yaml").read_text(encoding="utf-8").replace("value: 15296", f"value: {megabytes}")
    (folder / "small.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("TECO_SIM_CARD", str(folder / "small.yaml"))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_largest_batch_that_fits(
    dtype: str, save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_onnx(stack(3, 32, 20, 3))
    small_card(tmp_path, 2.5, monkeypatch)
    with pytest.raises(DeviceOutOfMemory) as caught:
        opened(path, 4 * 1000, dtype=dtype)
    said = str(caught.value)
    found = re.fullmatch(
        r"SPA 0 of TECO_AICARD_01: \S+\.onnx needs \d+ MB \(weights \d+ MB, activations \d+ MB, input and output "
        r"buffers \d+ MB\), free are 2 MB; the largest batch per SPA that fits is (\d+)",
        said,
    )
    assert found, said
    largest = int(found[1])
    with opened(path, 4 * largest, dtype=dtype) as engine:
        assert engine.shard_size == largest
        assert [spa.used for spa in engine.card.spas] == [engine.cost.memory] * 4
        assert engine.cost.memory <= 2.5 * 2**20
    with pytest.raises(DeviceOutOfMemory, match=f"that fits is {largest}$"):
        opened(path, 4 * (largest + 1), dtype=dtype)


def test_a_model_that_does_not_fit_at_all(save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_card(tmp_path, 0.05, monkeypatch)
    with pytest.raises(DeviceOutOfMemory, match=r"not even one sample fits$"):
        opened(save_onnx(stack(1, 32, 20, 3)), 8)
    with pytest.raises(DeviceOutOfMemory, match=r"the model's batch is fixed: export it with a smaller one$"):
        opened(save_onnx(bound(stack(1, 32, 20, 3), 4)), 8)


def test_resnet_at_batch_512_fits_in_memory(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(networks.resnet()), 512) as engine:
        assert engine.cost.memory < engine.description.memory_bytes / 20
