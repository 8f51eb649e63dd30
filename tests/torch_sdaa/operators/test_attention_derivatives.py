"""Attention under ``torch.func``'s transforms, and its forward-mode derivatives."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch.autograd import forward_ad  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jvp, vmap  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

F = torch.nn.functional
pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]


def attention(x: Any) -> Any:
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def energy(x: Any) -> Any:
    return attention(x).square().sum()


def dual(x: Any) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(attention(forward_ad.make_dual(x, x.cos()))).tangent


FORWARD = {
    "jvp": lambda x: jvp(attention, (x,), (x.cos(),))[1],
    "jacfwd": jacfwd(energy),
    "hessian": hessian(energy),
    "dual": dual,
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_derivatives_are_those_of_the_cpu_without_fused_attention(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 3, 4)
    with sdpa_kernel(SDPBackend.MATH):
        expected = FORWARD[name](x)
    made = FORWARD[name](x.sdaa())
    assert made.device.type == "sdaa"
    torch.testing.assert_close(made.cpu(), expected, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_gradients_of_samples_are_those_of_the_cpu() -> None:
    def of_samples(layer: Any, x: Any) -> Any:
        def loss(parameters: Any, sample: Any) -> Any:
            return functional_call(layer, parameters, (sample[None],)).square().sum()

        return vmap(grad(loss), (None, 0))(dict(layer.named_parameters()), x)

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(3, 5, 8)
    expected = of_samples(layer, x), grad(energy)(x[:, None])
    made = of_samples(layer.sdaa(), x.sdaa()), grad(energy)(x[:, None].sdaa())
    assert all(torch.equal(made[0][name].cpu(), value) for name, value in expected[0].items())
    assert torch.equal(made[1].cpu(), expected[1])
