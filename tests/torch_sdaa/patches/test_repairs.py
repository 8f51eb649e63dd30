"""Moves of modules, inference mode, and shared random numbers, compared with other devices."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import torch_sdaa  # noqa: E402, F401 - makes the device


def test_a_module_moves_while_its_output_is_alive():
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    there = copy.deepcopy(model)
    optimizer = torch.optim.SGD(there.parameters(), lr=0.1)
    weight, output = there[0].weight, there(torch.ones(2, 3))
    output.sum().backward()
    output = there(torch.ones(2, 3))  # alive: its graph holds the weights
    there.to("sdaa:1")
    assert there[0].weight is weight is there[1].weight
    assert weight.device == weight.grad.device == torch.device("sdaa:1")
    assert output.device.type == "cpu"
    optimizer.zero_grad()
    there(torch.ones(2, 3, device="sdaa:1")).sum().backward()
    optimizer.step()
    at_home = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    at_home.step()
    assert torch.equal(weight.cpu(), model[0].weight)
    there.cpu()
    assert there[0].weight is weight is there[1].weight
    assert weight.device == weight.grad.device == torch.device("cpu")


def test_conversion_switches_of_pytorch_are_restored():
    assert not torch.__future__.get_swap_module_params_on_conversion()
    layer = nn.Linear(2, 2)
    before, output = layer.weight, layer(torch.ones(2))  # swapping would refuse
    assert layer.double().weight is before
    assert output.dtype is torch.float32


@pytest.mark.parametrize("p", [0.1, 0.3, 0.41])
def test_dropout_equals_the_cpus_with_the_devices_numbers(p: float):
    given = torch.linspace(-3, 3, 257)
    results = []
    for device in ("cpu", "sdaa:2"):
        x = given.to(device, copy=True).requires_grad_()
        torch.manual_seed(3)
        y = functional.dropout(x, p)
        y.backward(x.detach())
        results.append((y.detach().cpu(), x.grad.cpu()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_a_third_party_operator_without_a_generator_draws_from_the_devices():
    library = torch.library.Library("sdaa_repairs", "FRAGMENT")
    library.define("noisy(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("noisy", lambda x: x + torch.randn(x.shape), "CPU")
    torch.manual_seed(1)
    wanted = [torch.ops.sdaa_repairs.noisy(torch.zeros(5)) for _ in range(2)]  # 5: one normal number is left over
    torch.manual_seed(1)
    cpus = torch.get_rng_state()
    got = [torch.ops.sdaa_repairs.noisy(torch.zeros(5, device="sdaa:1")) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), cpus)
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one.cpu(), other)


def test_a_failing_third_party_operator_restores_the_generator():
    def fails(x: torch.Tensor) -> torch.Tensor:
        torch.randn(3)
        raise ValueError("on purpose")

    library = torch.library.Library("sdaa_repairs_2", "FRAGMENT")
    library.define("fails(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("fails", fails, "CPU")
    cpus = torch.get_rng_state()
    with pytest.raises(ValueError, match="on purpose"):
        torch.ops.sdaa_repairs_2.fails(torch.zeros(5, device="sdaa"))
    assert torch.equal(torch.get_rng_state(), cpus)


def test_a_generator_of_the_cpu_is_an_error():
    with pytest.raises(RuntimeError, match=r"'sdaa' device type for generator .*'cpu'"):
        torch.randn(2, device="sdaa", generator=torch.Generator())


def test_checkpointing_drops_the_same_elements_again():
    torch.manual_seed(2)
    x = torch.ones(64, device="sdaa:1", requires_grad=True)
    y = checkpoint(lambda t: functional.dropout(t, 0.5) * t, x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.detach(), 2 * y.detach())  # y is m x x of ones; its gradient is 2 m


def test_views_of_ordinary_and_inference_tensors():
    layer = nn.Linear(3, 2).to("sdaa")
    with torch.inference_mode():
        made = layer(torch.ones(1, 3, device="sdaa"))
        assert not layer.weight.t().is_inference()
    assert made.is_inference()
    assert made.view(2).is_inference()


def test_sparse_tensors_on_any_device():
    x = torch.sparse_coo_tensor(torch.tensor([[0, 2], [1, 0]]), torch.tensor([3.0, 4.0]), (3, 2), check_invariants=True)
    there = x.to("sdaa:1").to("sdaa:2")
    assert there.device == torch.device("sdaa:2")
    assert torch.equal(there.to_dense().cpu(), x.to_dense())
    taken = torch.zeros(3, 2, layout=torch.sparse_coo, device="sdaa:3").copy_(there)
    assert torch.equal(taken.to_dense().cpu(), x.to_dense())
