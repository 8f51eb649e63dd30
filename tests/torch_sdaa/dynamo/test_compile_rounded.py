"""Backend ``sdaa`` of ``torch.compile`` in bfloat16, which partitions compute as rounded float32; names in models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_sdaa  # noqa: E402, F401 -- makes the device
from engine import EngineSpec, open_engine  # noqa: E402
from torch_sdaa import dynamo  # noqa: E402
from torch_sdaa.dynamo.builder import Builder, Value  # noqa: E402
from torch_sdaa.dynamo.sizes import Sizes  # noqa: E402

F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("compiles_anew")]


def narrow(*shape: int) -> Any:
    torch.manual_seed(1)
    return torch.randn(*shape).bfloat16().sdaa()


def test_elementwise_results_are_bit_identical_to_the_uncompiled_device() -> None:
    def function(a: Any, b: Any) -> Any:
        moved = torch.cat([a.t(), b.t()], 1)[1:]
        made = a * 0.1 + b, a / b, a.sigmoid(), a.exp() - 1, a.float() * 3, (a > 0.1), a.half(), a.long(), a + 1.5
        return *made, moved, torch.where(a > b, a, b), a.double().bfloat16(), torch.full_like(a, 0.3), a.relu().amax(1)

    a, b = narrow(6, 8), narrow(6, 8).flip(0)
    a[0, 0] = 0.1  # what a number is compared with is rounded too
    made, expected = torch.compile(function, backend="sdaa")(a, b), function(a, b)
    assert not dynamo.report().fallbacks
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours.dtype, ours.device) == (theirs.dtype, theirs.device)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


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


def trained(function: Any, model: Any, x: Any, whole: bool) -> Any:
    with torch.autocast("sdaa", dtype=torch.bfloat16, enabled=not whole):
        made = function(x)
        loss = F.cross_entropy(made.float(), torch.arange(4, device=x.device))
    loss.backward()
    return [loss.detach().cpu().double()] + [p.grad.cpu().double() for p in model.parameters()]


@pytest.mark.parametrize("whole", [False, True])
def test_a_training_step_compiles_whole_and_is_as_exact_as_uncompiled(whole: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    exact = Mixed()
    plain = copy.deepcopy(exact).sdaa().to(torch.bfloat16 if whole else torch.float32)
    model = copy.deepcopy(plain)
    x = torch.randn(4, 3, 6, 6)
    given = x.sdaa().to(torch.bfloat16 if whole else torch.float32)
    options = {"keep": str(tmp_path / "kept"), "const_name": True}
    theirs = trained(plain, plain, given, whole)
    ours = trained(torch.compile(model, backend="sdaa", options=options), model, given, whole)
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


def test_numbers_are_rounded_only_if_necessary() -> None:
    b = Builder(Sizes())
    x = b.input("x", (2, 3), torch.bfloat16)
    moved = b.transpose(Value(x.name, x.shape, torch.float32), [1, 0])
    assert b.rounded(moved) == Value(moved.name, (3, 2), torch.bfloat16)
    doubled = b.op("Add", [moved, moved], torch.float32, moved.shape)
    again = b.rounded(b.rounded(doubled))
    assert [node.op_type for node in b.nodes] == ["Transpose", "Add", "Cast", "Cast"]
    assert again.name == b.nodes[-1].output[0]


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
