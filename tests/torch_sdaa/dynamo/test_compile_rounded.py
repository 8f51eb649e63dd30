"""Backend ``sdaa`` of ``torch.compile`` in float16 and bfloat16, computed as rounded float32; names in models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

torch = pytest.importorskip("torch")

import torch_sdaa  # noqa: E402, F401 -- makes the device
from engine import EngineSpec, open_engine  # noqa: E402
from tests.torch_sdaa.dynamo.random_graphs import differing  # noqa: E402
from torch_sdaa import dynamo  # noqa: E402
from torch_sdaa.dynamo.builder import Builder, Value  # noqa: E402
from torch_sdaa.dynamo.sizes import Sizes  # noqa: E402

F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("compiles_anew")]


_NARROW = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def narrow(dtype: Any, *shape: int) -> Any:
    torch.manual_seed(1)
    return torch.randn(*shape).to(dtype).sdaa()


@_NARROW
def test_elementwise_results_are_bit_identical_to_the_uncompiled_device(dtype: Any) -> None:
    def function(a: Any, b: Any) -> Any:
        moved = torch.cat([a.t(), b.t()], 1)[1:]
        made = a * 0.1 + b, a / b, a.sigmoid(), a.exp() - 1, a.float() * 3, (a > 0.1), a.half(), a.long(), a + 1.5
        more = a.bfloat16(), a.double().to(dtype), torch.full_like(a, 0.3), a.relu().amax(1), a.bfloat16().half() + a
        return *made, moved, torch.where(a > b, a, b), *more

    a, b = narrow(dtype, 6, 8), narrow(dtype, 6, 8).flip(0)
    a[0, 0] = 0.1  # what a number is compared with is rounded too
    made, expected = torch.compile(function, backend="sdaa")(a, b), function(a, b)
    assert not dynamo.report().fallbacks
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours.dtype, ours.device) == (theirs.dtype, theirs.device)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_float16_overflows_and_underflows_between_operators() -> None:
    def function(a: Any) -> Any:
        return a * 300 / 300, (a * 1e-5) * 1e5, (a * a).sum(), a.exp().log()

    a = torch.tensor([1.0, 250.0, -3.0, 240.0, 0.001, 11.0]).half().sdaa()
    made, expected = torch.compile(function, backend="sdaa")(a), function(a)
    assert expected[0].isinf().any()
    for ours, theirs in zip(made, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_sigmoids_of_large_negative_values_are_not_zero() -> None:
    x = torch.linspace(-85.0, 20.0, 64)
    for dtype in (torch.float32, torch.bfloat16):
        given = x.to(dtype).sdaa()
        for function in (torch.sigmoid, F.silu, lambda x: torch.sigmoid(x).log(), F.logsigmoid):
            made, expected = torch.compile(function, backend="sdaa")(given), function(given)
            near = 2e-6 if function is F.silu and dtype is torch.float32 else 0
            torch.testing.assert_close(made, expected, rtol=1e-6 if dtype is torch.float32 else 8e-3, atol=near)
            torch._dynamo.reset()


@_NARROW
def test_silu_and_its_gradient_are_rounded_once(dtype: Any) -> None:
    found = []
    for function in (F.silu, torch.compile(F.silu, backend="sdaa")):
        x = (narrow(dtype, 64, 64) * 4).requires_grad_()
        made = function(x)
        made.backward(narrow(dtype, 64, 64))
        found.append((made.detach(), x.grad))
    for ours, theirs in zip(*found, strict=True):
        assert (ours != theirs).float().mean() < 0.01


@_NARROW
def test_operators_that_the_device_rounds_once_are_rounded_once(dtype: Any) -> None:
    def function(a: Any, b: Any, c: Any) -> Any:
        cubes = a**3, c**-2, c**-0.5
        return torch.addcmul(a, b, c, value=0.7), torch.addcdiv(a, b, c), torch.lerp(a, b, 0.3), *cubes

    a, b, c = narrow(dtype, 64, 64), narrow(dtype, 64, 64).flip(0), narrow(dtype, 64, 64).abs() + 0.25
    for ours, theirs in zip(torch.compile(function, backend="sdaa")(a, b, c), function(a, b, c), strict=True):
        assert (ours != theirs).float().mean() < 0.01  # the kernel's sum may be fused, which moves a tie


def test_a_product_in_the_middle_of_an_operator_does_not_overflow() -> None:
    a, b = torch.full((32,), 8.0).half().sdaa(), torch.full((32,), 300.0).half().sdaa()
    made = torch.compile(torch.addcmul, backend="sdaa")(a, b, b, value=0.5)
    torch.testing.assert_close(made, torch.addcmul(a, b, b, value=0.5), rtol=0, atol=0)
    assert made.isfinite().all()


@pytest.mark.parametrize("given", [None, torch.float16, torch.float32])
def test_a_batch_norm_in_float16_uses_statistics_as_the_device_stores_them(given: Any) -> None:
    def function(x: Any) -> Any:
        return F.batch_norm(x, mean, variance, weight, bias, training=True)

    x = narrow(torch.float16, 8, 4, 5, 5) + 50
    mean, variance = (function(4, dtype=given or torch.float16).sdaa() for function in (torch.zeros, torch.ones))
    weight, bias = (None, None) if given is None else (torch.rand(4).to(given).sdaa(), torch.rand(4).to(given).sdaa())
    expected, made = function(x), torch.compile(function, backend="sdaa")(x)
    assert (made != expected).float().mean() < 0.05  # with other statistics: almost all


def test_a_linear_layer_under_autocast_overflows_as_uncompiled() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 8, bias=False)).sdaa()
    with torch.no_grad():
        layers[0].weight.fill_(32.0)
        layers[1].weight.fill_(2.0**-14)
    x = torch.full((4, 64), 40.0).sdaa()
    with torch.autocast("sdaa", dtype=torch.float16):
        expected, made = layers(x), torch.compile(layers, backend="sdaa")(x)
    assert expected.isinf().all()
    assert torch.equal(made, expected)
    small = torch.full((4, 64), 1.0).sdaa()
    with torch.autocast("sdaa", dtype=torch.float16):
        assert torch.equal(torch.compile(layers, backend="sdaa")(small), layers(small))
        assert layers(small).isfinite().all()


class Mixed(torch.nn.Module):
    """A convolution with a batch norm, attention and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.layer, self.three, self.last = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        query, key, value = self.three(self.layer(x)).chunk(3, -1)
        return self.last(F.scaled_dot_product_attention(query, key, value).mean(1))


def trained(function: Any, model: Any, x: Any, dtype: Any, whole: bool) -> Any:
    with torch.autocast("sdaa", dtype=dtype, enabled=not whole):
        made = function(x)
        loss = F.cross_entropy(made.float(), torch.arange(4, device=x.device))
    loss.backward()
    return [loss.detach().cpu().double()] + [p.grad.cpu().double() for p in model.parameters()]


@_NARROW
@pytest.mark.parametrize("whole", [False, True])
def test_a_training_step_compiles_whole_and_is_as_exact_as_uncompiled(whole: bool, dtype: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    exact = Mixed()
    plain = copy.deepcopy(exact).sdaa().to(dtype if whole else torch.float32)
    model = copy.deepcopy(plain)
    x = torch.randn(4, 3, 6, 6)
    given = x.sdaa().to(dtype if whole else torch.float32)
    options = {"keep": str(tmp_path / "kept"), "const_name": True}
    theirs = trained(plain, plain, given, dtype, whole)
    ours = trained(torch.compile(model, backend="sdaa", options=options), model, given, dtype, whole)
    loss = F.cross_entropy(exact.double()(x.double()), torch.arange(4))
    loss.backward()
    wanted = [loss.detach(), *(p.grad for p in exact.parameters())]
    apart = [sum(((a - b) ** 2).sum() for a, b in zip(found, wanted, strict=True)) ** 0.5 for found in (ours, theirs)]
    assert apart[0] <= 2 * apart[1]
    report = dynamo.report()
    assert [(g.stage, len(g.partitions), g.fallbacks) for g in report.graphs] == [
        ("forward", 1, []),
        ("backward", 1, []),
    ]
    for path in (tmp_path / "kept").glob("*.onnx"):
        _same_on_the_reference(path)


def _same_on_the_reference(path: Path) -> None:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
        inputs = [stored[name] for name in stored if name.startswith("input_")]
        outputs = [stored[name] for name in stored if name.startswith("output_")]
    with open_engine("onnx", EngineSpec(ckpt=path, dtype="float32", divided=False)) as engine:
        made = engine(inputs)
    for found, wanted in zip(made, outputs, strict=True):
        np.testing.assert_array_equal(found, wanted)


@_NARROW
def test_numbers_are_rounded_only_if_necessary(dtype: Any) -> None:
    b = Builder(Sizes())
    x = b.input("x", (2, 3), dtype)
    widened = ["Cast"] if dtype is torch.float16 else []
    moved = b.transpose(Value(x.name, x.shape, torch.float32), [1, 0])
    assert b.rounded(moved, dtype) == Value(moved.name, (3, 2), dtype)
    doubled = b.op("Add", [moved, moved], torch.float32, moved.shape)
    again = b.rounded(b.rounded(doubled, dtype), dtype)
    assert [node.op_type for node in b.nodes] == [*widened, "Transpose", "Add", "Cast", "Cast"]
    assert again.name == b.nodes[-1].output[0]


def test_float16_passes_the_ends_of_a_model_as_it_is() -> None:
    b = Builder(Sizes())
    x = b.input("x", (2, 3), torch.float16)
    doubled = b.op("Add", [x, x], torch.float32, x.shape)
    moved = b.transpose(b.rounded(doubled, torch.float16), [1, 0])
    model = b.model([x, b.rounded(doubled, torch.float16), Value(moved.name, moved.shape, torch.float16)])
    kinds = [info.type.tensor_type.elem_type for info in (*model.graph.input, *model.graph.output)]
    assert kinds == [onnx.TensorProto.FLOAT16] * 4
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = np.array([[1, -2.5, 40000], [0, np.inf, 6e-8]], np.float16)
    same, twice, turned = session.run(None, {"x": given})
    np.testing.assert_array_equal(same, given)
    np.testing.assert_array_equal(twice, np.array([[2, -5, np.inf], [0, np.inf, 1.2e-7]], np.float16))
    np.testing.assert_array_equal(turned, twice.T)


@_NARROW
def test_constants_are_rounded_unless_they_are_exact(dtype: Any) -> None:
    b = Builder(Sizes())
    for number, exact in ((0.5, True), (0.1, False), (float("inf"), True), (1 / 3, False)):
        before = len(b.nodes)
        b.rounded(Value(b.scalar(number, torch.float32), (), torch.float32), dtype)
        assert len(b.nodes) == before + (0 if exact else 2)
    other = torch.bfloat16 if dtype is torch.float16 else torch.float16
    b.rounded(b.rounded(b.input("y", (2,), torch.float32), dtype), other)  # exact in one is not exact in the other
    assert len(b.nodes) == 8


def test_names_in_a_model_are_not_those_of_its_inputs() -> None:
    b = Builder(Sizes())
    given = b.input("exp_1", (3,), torch.float32)  # what a node outside the partition is called
    b._name = "exp"
    assert b.op("Exp", [given], torch.float32, (3,)).name != given.name


@pytest.mark.parametrize("dim", [0, 2, None])
def test_a_weight_norm_compiles_both_ways(dim: int | None) -> None:
    torch.manual_seed(0)
    exact = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 6, 3), dim=dim)
    model, x = copy.deepcopy(exact).sdaa(), torch.randn(2, 4, 10)
    exact.double()(x.double()).square().sum().backward()
    torch.compile(model, backend="sdaa")(x.sdaa()).square().sum().backward()
    for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu().double(), theirs.grad, rtol=1e-4, atol=1e-4)
    assert not dynamo.report().fallbacks


def test_topk_of_rounded_numbers_is_left_to_the_device() -> None:
    a = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0]).sdaa()
    for dtype in (torch.float16, torch.bfloat16):
        torch.compiler.reset()
        dynamo.clear()
        given = a.to(dtype)
        made, expected = torch.compile(lambda v: v.topk(2), backend="sdaa")(given), given.topk(2)
        assert (made[0].tolist(), made[1].tolist()) == (expected[0].tolist(), expected[1].tolist())
        (left,) = dynamo.report().fallbacks
        assert "the order of equal ones differs" in left.reason


@_NARROW
@pytest.mark.parametrize("seed", range(6))
def test_random_graphs_have_the_bits_of_the_uncompiled_device(dtype: Any, seed: int) -> None:
    assert not differing(seed, dtype)
