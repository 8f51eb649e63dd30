"""Operators on lists of tensors: one launch each, the CPU's bits, and tensor by tensor for mixed lists."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = pytest.mark.torch


def _lists(device: str, count: int = 3) -> list[list[Any]]:
    draw = torch.Generator().manual_seed(0)
    made = [[torch.rand(k + 1, 3, generator=draw) + 0.5 for k in range(20)] for _ in range(count)]
    return [[t.to(device) for t in one] for one in made]


CALLS = {
    "add_ scalar": lambda a, b, c: torch._foreach_add_(a, 1.5),
    "add_": lambda a, b, c: torch._foreach_add_(a, b, alpha=2),
    "mul_ tensor": lambda a, b, c: torch._foreach_mul_(a, torch.tensor(0.3)),
    "addcdiv_": lambda a, b, c: torch._foreach_addcdiv_(a, b, c, value=0.7),
    "addcmul": lambda a, b, c: torch._foreach_addcmul(a, b, c, value=0.7),
    "lerp_": lambda a, b, c: torch._foreach_lerp_(a, b, 0.1),
    "sqrt": lambda a, b, c: torch._foreach_sqrt(a),
    "norm": lambda a, b, c: torch._foreach_norm(a),
    "maximum_": lambda a, b, c: torch._foreach_maximum_(a, b),
    "pow": lambda a, b, c: torch._foreach_pow(a, 3.0),
    "copy_": lambda a, b, c: torch._foreach_copy_(a, b),
    "zero_": lambda a, b, c: torch._foreach_zero_(a),
    "with itself": lambda a, b, c: torch._foreach_mul_(a, a),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_list_is_one_launch_with_the_bits_of_the_cpu(name: str) -> None:
    there, here = _lists("sdaa"), _lists("cpu")
    before = C.launches()
    found = CALLS[name](*there)
    assert C.launches() == before + 1
    wanted = CALLS[name](*here)
    for one, other in zip([*there[0], *(found or ())], [*here[0], *(wanted or ())], strict=True):
        assert one.device.type == "sdaa"
        assert torch.equal(one.cpu(), other)


def test_views_of_one_storage_stay_views() -> None:
    whole, plain = torch.ones(24, 4, device="sdaa"), torch.ones(24, 4)
    torch._foreach_add_(list(whole.unbind(0)), list(range(24)))
    torch._foreach_add_(list(plain.unbind(0)), list(range(24)))
    assert torch.equal(whole.cpu(), plain)


def test_mixed_lists_go_tensor_by_tensor() -> None:
    mixed = [
        torch.ones(3, device="sdaa"),
        torch.ones(3, device="sdaa:1"),
        torch.ones(3, device="sdaa", dtype=torch.float16),
    ]
    before = C.launches()
    torch._foreach_add_(mixed, 1.0)
    assert C.launches() == before + 3
    assert [str(t.device) for t in mixed] == ["sdaa:0", "sdaa:1", "sdaa:0"]
    assert all(t.sum().item() == 6 for t in mixed)
    torch._foreach_copy_(mixed[:1], [torch.zeros(3)])  # from the host
    assert mixed[0].sum().item() == 0


def test_gradients_go_through_lists() -> None:
    there, here = (torch.ones(4, device=device, requires_grad=True) for device in ("sdaa", "cpu"))
    for x in (there, here):
        (torch._foreach_mul([x, x], 3.0)[0] * torch._foreach_sqrt([x])[0]).sum().backward()
    assert torch.equal(there.grad.cpu(), here.grad)


def test_the_library_has_the_name_of_the_guides() -> None:
    ours = importlib.import_module("torch_sdaa.contrib.optimized_lib")
    assert importlib.import_module("torch.contrib.sdaa.optimized_lib") is ours
    assert (
        importlib.import_module("torch_sdaa.contrib.optimized_lib").__spec__.name == "torch_sdaa.contrib.optimized_lib"
    )
