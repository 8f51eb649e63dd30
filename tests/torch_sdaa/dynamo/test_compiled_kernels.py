"""Launches of compiled graphs: operators that share a kernel; the cost never exceeds that of the operators."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_compile_backend import Net

import torch_sdaa
from torch_sdaa import dynamo
from torch_sdaa.cost import prices
from torch_sdaa.cost.predicted_cost import PredictedCost, observe

pytestmark = [pytest.mark.torch, pytest.mark.slow]

F = torch.nn.functional
NO_CACHE = {"cache": False}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()
    dynamo.clear()


def plans() -> list[Any]:
    return [plan for graph in dynamo.report().graphs for part in graph.partitions for plan in part.plans]


def kinds() -> list[str]:
    """Return the work of the compiled kernels."""
    return [kernel.op_type for plan in plans() for kernel in prices._graphs[f"sdaa_graph::{plan.launch}"].kernels]


def compiled(function: Callable[..., Any], *inputs: Any) -> list[str]:
    torch.compile(function, backend="sdaa", options=NO_CACHE)(*inputs)
    return kinds()


def matrix(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).sdaa()


def test_a_chain_of_pointwise_operators_and_its_reduction_are_one_kernel() -> None:
    assert compiled(lambda x: (x.sin() * 2 + 1).exp().sum(1), matrix(4, 5)) == ["sin + mul + add + exp + 1 more"]


def test_views_launch_nothing_and_sizes_must_agree() -> None:
    x = matrix(4, 6)
    assert compiled(lambda x: x.view(3, 8).t().relu().sum(1).exp(), x) == ["relu + sum", "exp"]


def test_a_product_is_fused_with_its_only_readers_up_to_the_activation() -> None:
    x, w = matrix(4, 6), matrix(6, 5)
    assert compiled(lambda x, w: ((x @ w) * 2).relu() + 1, x, w) == ["mm + mul + relu", "add"]
    torch.compiler.reset()
    dynamo.clear()
    assert compiled(lambda x, w: (lambda y: (y, y * 2))(x @ w), x, w) == ["mm", "mul"]


def test_a_decomposed_operator_is_one_kernel() -> None:
    layer = torch.nn.LayerNorm(8).sdaa()
    torch.compile(layer, backend="sdaa", options=NO_CACHE)(matrix(4, 8).requires_grad_()).sum().backward()
    assert kinds() == ["native_layer_norm", "native_layer_norm_backward"]


def test_attention_is_one_kernel_each_way() -> None:
    q = [matrix(1, 2, 4, 8).requires_grad_() for _ in range(3)]
    made = torch.compile(F.scaled_dot_product_attention, backend="sdaa", options=NO_CACHE)(*q)
    made.sum().backward()
    assert kinds() == ["scaled_dot_product_attention", "scaled_dot_product_attention"]


def test_a_kernel_reads_its_inputs_and_writes_its_outputs() -> None:
    x, y = matrix(4, 6), matrix(6)
    torch.compile(lambda x, y: (x + y).exp().sum(1), backend="sdaa", options=NO_CACHE)(x, y)
    (kernel,) = prices._graphs[f"sdaa_graph::{plans()[0].launch}"].kernels
    assert (kernel.read, kernel.written) == (4 * (24 + 6), 4 * 4)
    assert kernel.flops == 24 + 4 * 24 + 24  # an exp counts four


def test_values_between_kernels_take_memory_of_the_card() -> None:
    x, w = matrix(2, 4), matrix(4, 1 << 18)
    function = torch.compile(lambda x, w: ((x @ w).softmax(1) @ w.t()).sum(), backend="sdaa", options=NO_CACHE)
    function(x, w)
    torch.sdaa.reset_peak_memory_stats()
    before = torch.sdaa.memory_allocated()
    function(x, w)
    between = 2 * (1 << 18) * 4
    assert torch.sdaa.max_memory_allocated() - before >= 2 * between  # the product, and its softmax
    assert torch.sdaa.memory_allocated() == before


def test_running_statistics_are_written_by_the_launch_that_computes_them() -> None:
    model = Net().sdaa()
    function = torch.compile(model, backend="sdaa", options=NO_CACHE)
    x = matrix(4, 3, 16, 16)
    version = model.norm.running_mean._version
    seen = observe(lambda: function(x), 1)
    assert {name.partition("::")[0] for name in seen.operators} <= {"sdaa_graph", "aten"}
    assert "aten::copy_" not in seen.operators
    assert model.norm.num_batches_tracked.item() == 2
    assert model.norm.running_mean._version > version  # autograd would see who kept the old one
    assert dynamo.report().graphs[0].written_back == 3


def launches(seen: PredictedCost) -> int:
    """Return the card's launches: in a compiled graph, each of its kernels."""
    inside = {f"sdaa_graph::{plan.launch}": plan.kernels for plan in plans()}
    return sum(count * inside.get(op, 1) for op, count in seen.operators.items())


def no_dearer(model: torch.nn.Module, inputs: torch.Tensor) -> None:
    model, x = model.sdaa(), inputs.sdaa()
    other = torch.compile(copy.deepcopy(model), backend="sdaa", options=NO_CACHE)

    def step(function: Any) -> None:
        function.zero_grad()
        made = function(x)
        (made if isinstance(made, torch.Tensor) else made[0]).square().mean().backward()

    plain, seen = observe(lambda: step(model), 1), observe(lambda: step(other), 1)
    assert seen.seconds <= plain.seconds
    assert launches(seen) <= launches(plain)


NETS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "everything": lambda: (Net(), torch.randn(4, 3, 16, 16)),
    "residual": lambda: (Residual(), torch.randn(2, 8, 8, 8)),
    "transformer": lambda: (
        torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, activation="gelu"),
        torch.randn(2, 6, 32),
    ),
    "recomputed": lambda: (Recomputed(), torch.randn(5, 16)),
    "group norm": lambda: (
        torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.GroupNorm(2, 8), torch.nn.SiLU()),
        torch.randn(2, 4, 8, 8),
    ),
}


class Residual(torch.nn.Module):
    """Two convolutions with batch norm, plus the input."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (torch.nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.m, self.n = torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        return F.relu(self.n(self.b(F.relu6(self.m(self.a(x))))) + x)


class Recomputed(torch.nn.Module):
    """Pointwise operators that backward recomputes, read in several places."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        gate = torch.sigmoid(self.a(x))
        return F.softmax(gate * torch.tanh(self.b(x * gate)) + (1 - gate) * x.cos(), 1)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(NETS))
def test_a_compiled_step_costs_no_more_than_its_launches_one_by_one(name: str) -> None:
    torch.manual_seed(0)
    no_dearer(*NETS[name]())


@pytest.mark.long
@pytest.mark.parametrize("name", ["alexnet", "bert", "gpt2", "mobilenet_v2", "shufflenet_v2_x1_0", "t5"])
def test_third_party_networks_do_not_cost_more(name: str) -> None:
    pytest.importorskip("torchvision")
    pytest.importorskip("transformers")
    from tests.torch_sdaa.dynamo.compiled_models import network

    no_dearer(*network(name))


def test_every_price_is_exact() -> None:
    from torch_sdaa.reports.summaries import pricer

    compiled(lambda x: x.exp().sum(), matrix(3, 4))
    assert not [op for op in pricer().rough if op.startswith("sdaa_graph")]
    rows = pricer().kernels(f"sdaa_graph::{plans()[0].launch}")
    assert [(row.kind, row.launches) for row in rows] == [("exp + sum", 1)]
    assert torch_sdaa.dynamo.report().graphs[0].partitions[0].plans[0].seconds == pytest.approx(rows[0].seconds)
