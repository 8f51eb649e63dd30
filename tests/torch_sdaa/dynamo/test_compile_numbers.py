"""Backend ``sdaa`` of ``torch.compile`` with NaN, infinite, very large and very small numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._pytree import tree_flatten  # noqa: E402

import torch_sdaa  # noqa: E402, F401 -- makes the device
from torch_sdaa import dynamo  # noqa: E402

F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("compiles_anew")]

NAN, INF = float("nan"), float("inf")


def numbers(dtype: Any) -> Any:
    """Return planes with NaN at the edges and inside, a row of it, and both infinities, with and without NaN."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 9) * 2
    x[0, 1, 2, 3] = x[1, 0, 0, 0] = x[1, 3, 7, 8] = NAN
    x[0, 0, 0, 5], x[0, 0, 1, 5], x[0, 2] = INF, -INF, -INF
    x[1, 2, 3:6] = NAN
    x[1, 1, 2, :2] = torch.tensor([INF, NAN])
    return x.to(dtype).sdaa()


EXTREMES: dict[str, Callable[[Any], Any]] = {
    "amax": lambda v: (v.amax(3), v.amax((1, 2), keepdim=True), v.amax()),
    "amin": lambda v: (v.amin(2), v.amin((0, 3)), v.amin()),
    "max": lambda v: (v.max(3), v.max(1, keepdim=True), v.max()),
    "min": lambda v: (v.min(0), v.min(2), v.min()),
    "places": lambda v: (v.argmax(3), v.argmax(1, keepdim=True), v.argmax(), v.argmin(2), v.argmin()),
    "both": lambda v: (torch.aminmax(v, dim=3), torch.aminmax(v)),
    "largest size": lambda v: (v.norm(p=INF, dim=3), v.norm(p=INF)),
    "pools": lambda v: (F.max_pool2d(v, 2), F.max_pool2d(v, 3, 2, 1), F.max_pool1d(v[0], 3, 1, 1)),
    "a pool with its places": lambda v: F.max_pool2d(v, 3, 1, 1, return_indices=True)[0],
    "signs": lambda v: (v.sign(), torch.sgn(v)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", EXTREMES)
def test_nan_is_not_ignored(name: str, dtype: Any) -> None:
    x = numbers(dtype)
    made, expected = torch.compile(EXTREMES[name], backend="sdaa")(x), EXTREMES[name](x)
    assert any(each.isnan().any() for each in tree_flatten(expected)[0]) or name in ("places", "signs")
    torch.testing.assert_close(made, expected, rtol=0, atol=0, equal_nan=True)
    assert not dynamo.report().fallbacks


def test_topk_begins_with_nan() -> None:
    x = torch.tensor([[1.0, NAN, 3.0, -INF, 2.0], [5.0, 4.0, NAN, NAN, 1.0], [3.0, 1.0, 2.0, 9.0, 0.0]]).sdaa()

    def function(v: Any) -> Any:
        return v.topk(3), v.topk(2, 0), v.topk(3, largest=False), v.topk(1, sorted=False)

    torch.testing.assert_close(torch.compile(function, backend="sdaa")(x), function(x), rtol=0, atol=0, equal_nan=True)
    assert not dynamo.report().fallbacks


def test_a_window_of_nan_only_trains() -> None:
    x = torch.full((1, 1, 4, 4), NAN)
    x[..., 2:] = 1.0
    made = x.sdaa().requires_grad_()
    torch.compile(lambda v: F.max_pool2d(v, 2).nan_to_num(nan=5.0).sum(), backend="sdaa")(made).backward()
    assert made.grad.sum() == 2  # of the two windows of numbers alone
    assert made.grad[..., :2].sum() == 0


def test_missing_targets_do_not_affect_gradients() -> None:
    """A loss selected by targets that are numbers: its gradient elsewhere is 0 times the sign of NaN."""
    target = torch.tensor([[1.0, NAN, 3.0], [NAN, 0.5, 2.0]]).sdaa()

    def function(v: Any) -> Any:
        return torch.where(target.isnan(), 0.0, F.l1_loss(v, target, reduction="none")).sum()

    gradients = []
    for each in (function, torch.compile(function, backend="sdaa")):
        v = torch.ones(2, 3).sdaa().requires_grad_()
        each(v).backward()
        gradients.append(v.grad)
    assert not gradients[0].isnan().any()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


FAR: dict[str, Callable[[Any], Any]] = {
    "expm1": torch.expm1,
    "log1p": lambda v: torch.log1p(v.abs()),
    "log1p of -1": lambda v: torch.log1p(v.clamp(min=-1)),
    "softplus": F.softplus,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "elu": lambda v: F.elu(v, 0.7),
    "selu": F.selu,
    "celu": lambda v: F.celu(v, 1.3),
}


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", FAR)
def test_activations_of_any_number(name: str, dtype: Any) -> None:
    far = [1e4, 250.0, 200.0, 180.0, 100.0, 89.0, 50.0, 20.0, 8.0, 1.0, 0.3, 1e-3, 1e-5, 1e-8, 0.0]
    values = torch.tensor([*far, *(-each for each in far)], dtype=torch.float64)
    found = []
    for function in (FAR[name], torch.compile(FAR[name], backend="sdaa")):
        v = values.to(dtype).sdaa().requires_grad_()
        made = function(v)
        made.backward(torch.ones_like(made))
        found.append((made.detach(), v.grad))
    close = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(found[1], found[0], rtol=close, atol=1e-6)
    ends = torch.tensor([INF, -INF, NAN]).to(dtype).sdaa()
    torch.testing.assert_close(torch.compile(FAR[name], backend="sdaa")(ends), FAR[name](ends), equal_nan=True)
    assert not dynamo.report().fallbacks


@pytest.mark.parametrize("weighted", [False, True])
def test_a_layer_norm_of_float16_trains(weighted: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9)
    found = []
    for dtype in (torch.float64, torch.float16):
        norm = torch.nn.LayerNorm(9, elementwise_affine=weighted).to("sdaa", dtype)
        function = torch.compile(norm, backend="sdaa") if dtype is torch.float16 else norm
        v = x.to("sdaa", dtype).requires_grad_()
        function(v).pow(3).sum().backward()
        found.append([v.grad.double(), *(p.grad.double() for p in norm.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-2)
    assert not dynamo.report().fallbacks


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scalars_with_narrow_numbers_are_rounded_as_uncompiled(dtype: Any) -> None:
    torch.manual_seed(1)
    x = torch.randn(8, 40).to(dtype).sdaa()

    def function(v: Any) -> Any:
        size = v.abs()
        return (
            v + 0.3, v - 0.3, 0.3 - v, v * 0.3, v / 0.3, v % 0.3, torch.fmod(v, 0.3), size**0.3, size**-0.7, 0.3**v,
            torch.add(v, v.flip(0), alpha=0.3), torch.sub(v, v.flip(0), alpha=0.3),
        )  # fmt: skip

    torch.testing.assert_close(torch.compile(function, backend="sdaa")(x), function(x), rtol=0, atol=0)
    assert not dynamo.report().fallbacks
