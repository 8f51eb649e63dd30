"""Autocast in scripts: nested, as decorator, with its cache, in threads, around custom functions."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch


def _product() -> Any:
    x = torch.ones(2, 2, device="sdaa")
    return (x @ x).dtype


def test_the_names_of_the_interface() -> None:
    assert torch.amp.is_autocast_available("sdaa")
    assert torch.amp.autocast_mode.is_autocast_available("sdaa")
    assert torch.get_autocast_dtype("sdaa") is torch.float16
    assert not torch.is_autocast_enabled("sdaa")
    torch.set_autocast_enabled("sdaa", True)
    torch.set_autocast_dtype("sdaa", torch.bfloat16)
    try:
        assert _product() is torch.bfloat16
    finally:
        torch.set_autocast_enabled("sdaa", False)
        torch.set_autocast_dtype("sdaa", torch.float16)
    assert _product() is torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.autocast("sdaa"),
        lambda: torch.autocast(device_type="sdaa", dtype=torch.float16),
        lambda: torch.amp.autocast("sdaa"),
        lambda: torch.sdaa.amp.autocast(),
        lambda: torch.autocast(torch.device("sdaa", 1).type),
    ],
)
def test_every_way_to_enable_it(make: Any) -> None:
    with make():
        assert torch.is_autocast_enabled("sdaa")
        assert not torch.is_autocast_enabled("cpu")
        assert _product() is torch.float16


def test_nesting_and_switching_off() -> None:
    with torch.autocast("sdaa"):
        outer = _product()
        with torch.autocast("sdaa", dtype=torch.bfloat16):
            inner = _product()
            with torch.autocast("sdaa", enabled=False):
                off = _product()
            again = _product()
        after = _product()

    assert [outer, inner, off, again, after] == [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ]
    assert _product() is torch.float32


def test_an_error_leaves_it_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), torch.autocast("sdaa", dtype=torch.bfloat16):
        1 / 0  # noqa: B018

    assert not torch.is_autocast_enabled("sdaa")
    assert torch.get_autocast_dtype("sdaa") is torch.float16


def test_as_a_decorator() -> None:
    @torch.autocast("sdaa", dtype=torch.bfloat16)
    def of_torch() -> Any:
        return _product()

    @torch.sdaa.amp.autocast()
    def of_the_device() -> Any:
        return _product()

    assert (of_torch(), of_the_device(), _product()) == (torch.bfloat16, torch.float16, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int8])
def test_an_unsupported_dtype_is_a_warning_and_disables_autocast(dtype: Any) -> None:
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast("sdaa", dtype=dtype):
        assert _product() is torch.float32


def test_weights_are_cast_once_in_a_block_and_the_casts_are_freed() -> None:
    from torch_sdaa.loading.core import C

    model = nn.Linear(64, 64).sdaa()
    x = torch.ones(2, 64, device="sdaa", dtype=torch.float16)

    def casts(cache: bool) -> int:
        before = C.launches()
        with torch.autocast("sdaa", cache_enabled=cache):
            for _ in range(4):
                model(x)
        return int(C.launches() - before)

    with_cache, without = casts(cache=True), casts(cache=False)
    assert without - with_cache == 3 * 2  # weight and bias, three times more

    def remaining() -> int:
        gc.collect()
        return int(torch.sdaa.memory_allocated())

    before = remaining()
    with torch.autocast("sdaa"):
        model(x).sum().backward()
        assert remaining() > before
    model.zero_grad(set_to_none=True)
    assert remaining() == before


def test_weights_that_changed_are_cast_again_in_the_next_block() -> None:
    model = nn.Linear(4, 4, bias=False).sdaa()
    x = torch.ones(1, 4, device="sdaa")
    with torch.autocast("sdaa"):
        model(x)
    with torch.no_grad():
        model.weight.fill_(2)
    with torch.autocast("sdaa"):
        assert model(x).tolist() == [[8] * 4]


def test_gradients_equal_those_of_manual_casts() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(8, 16), nn.Linear(16, 4)
    x, y = torch.randn(5, 8), torch.randint(4, (5,))

    def by_autocast() -> list[Any]:
        first, second = (nn.Linear(n.in_features, n.out_features).sdaa() for n in layers)
        for made, layer in zip((first, second), layers, strict=True):
            made.load_state_dict(layer.state_dict())
        with torch.autocast("sdaa"):
            loss = nn.functional.cross_entropy(second(first(x.sdaa()).relu()), y.sdaa())
        loss.backward()
        return [loss, *(p.grad for layer in (first, second) for p in layer.parameters())]

    def by_hand() -> list[Any]:
        params = [p.detach().clone().requires_grad_() for layer in layers for p in layer.parameters()]
        w1, b1, w2, b2 = (p.half() for p in params)
        hidden = nn.functional.linear(x.half(), w1, b1).relu()
        # cross_entropy asks log_softmax for the dtype of its input, which autocast leaves: so it is on CUDA, too
        loss = nn.functional.nll_loss(nn.functional.linear(hidden, w2, b2).log_softmax(1).float(), y)
        loss.backward()
        return [loss, *(p.grad for p in params)]

    found = by_autocast()
    assert {each.dtype for each in found} == {torch.float32}
    assert all(torch.equal(a.cpu(), b) for a, b in zip(found, by_hand(), strict=True))


def test_backward_inside_and_outside_the_block_are_equal() -> None:
    def grads(inside: bool) -> list[Any]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).sdaa()
        with torch.autocast("sdaa", dtype=torch.bfloat16):
            loss = model(torch.ones(3, 8, device="sdaa")).square().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(grads(True), grads(False), strict=True))


def test_autocast_is_per_thread() -> None:
    found: dict[str, Any] = {}

    def here() -> None:
        found["before"] = _product()
        with torch.autocast("sdaa", dtype=torch.bfloat16):
            found["inside"] = _product()
            there.set()
            done.wait(10)
            found["after main's"] = _product()

    there, done = threading.Event(), threading.Event()
    with torch.autocast("sdaa"):
        thread = threading.Thread(target=here)
        thread.start()
        there.wait(10)
        found["main"] = _product()
    done.set()
    thread.join()

    assert found == {
        "before": torch.float32,
        "inside": torch.bfloat16,
        "main": torch.float16,
        "after main's": torch.bfloat16,
    }


class Product(torch.autograd.Function):
    """A matrix product that records its dtype."""

    seen: ClassVar[dict[str, Any]] = {}

    @staticmethod
    @torch.amp.custom_fwd(device_type="sdaa")
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        Product.seen["forward"] = torch.is_autocast_enabled("sdaa")
        return a.mm(b)

    @staticmethod
    @torch.amp.custom_bwd(device_type="sdaa")
    def backward(ctx: Any, grad: Any) -> Any:
        Product.seen["backward"] = torch.is_autocast_enabled("sdaa")
        a, b = ctx.saved_tensors
        return grad.mm(b.t()), a.t().mm(grad)


class Single(torch.autograd.Function):
    """Accepts only float32."""

    @staticmethod
    @torch.sdaa.amp.custom_fwd(cast_inputs=torch.float32)
    def forward(ctx: Any, a: Any) -> Any:
        assert a.dtype == torch.float32
        assert not torch.is_autocast_enabled("sdaa")
        return a * 2

    @staticmethod
    @torch.sdaa.amp.custom_bwd
    def backward(ctx: Any, grad: Any) -> Any:
        assert not torch.is_autocast_enabled("sdaa")
        return grad * 2


def test_custom_functions() -> None:
    a, b = (torch.ones(2, 2, device="sdaa", requires_grad=True) for _ in range(2))
    with torch.autocast("sdaa"):
        y = Product.apply(a, b)
        z = Single.apply(y)
    z.sum().backward()

    assert (y.dtype, z.dtype, a.grad.dtype) == (torch.float16, torch.float32, torch.float32)
    assert Product.seen == {"forward": True, "backward": True}
    assert a.grad.tolist() == [[4, 4], [4, 4]]


def test_checkpointing_computes_in_the_same_dtypes_again() -> None:
    def grads(checkpointed: bool) -> Any:
        torch.manual_seed(2)
        layer = nn.Linear(8, 8).sdaa()
        x = torch.ones(3, 8, device="sdaa", requires_grad=True)
        with torch.autocast("sdaa"):
            y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
        y.float().square().sum().backward()
        return [x.grad, layer.weight.grad]

    assert all(torch.equal(a, b) for a, b in zip(grads(True), grads(False), strict=True))


def test_attention_layers_are_lowered_where_they_would_be_fused() -> None:
    """As on CUDA, they do not use the fused form, which autocast does not support."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).sdaa().eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).sdaa().eval()
    x = torch.linspace(-1, 1, 48, device="sdaa").reshape(2, 3, 8)
    padding = torch.tensor([[False, False, True], [False, False, False]], device="sdaa")
    with torch.no_grad(), torch.autocast("sdaa"):
        lowered = attention(x, x, x)[0]
        encoded = encoder(x, src_key_padding_mask=padding)
    with torch.autocast("sdaa"):  # where gradients are taken nothing is fused
        expected = encoder(x, src_key_padding_mask=padding)

    assert lowered.dtype == torch.float16
    assert torch.equal(encoded, expected)
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_fused_form_is_kept_outside() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(layer)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_lowered(layer: Any) -> None:
    with torch.autocast("sdaa"):
        net, x = layer(4, 8).sdaa(), torch.ones(3, 2, 4, device="sdaa")
        y, state = net(x)
        packed, _ = net(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2])))
    y.float().sum().backward()

    assert {each.dtype for each in (y, packed.data, *state)} == {torch.float16}
    assert net.weight_ih_l0.grad.dtype == torch.float32
