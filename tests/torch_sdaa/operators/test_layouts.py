"""Sparse, quantised and nested tensors, torch.func and autograd's zero tensors: values equal the CPU's."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch_sdaa  # noqa: E402, F401 -- names the device

D = "sdaa"


@pytest.fixture(autouse=True, scope="module")
def _nothing_left() -> Iterator[None]:
    gc.collect()
    before = torch.sdaa.memory_allocated()
    yield
    gc.collect()
    assert torch.sdaa.memory_allocated() <= before


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "in beta state", "prototype"
        yield


def draw(*sizes: int) -> Any:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_sparse_layouts(layout: Any) -> None:
    dense, right = draw(4, 6).relu(), draw(6, 3)
    block = {"blocksize": (2, 2)} if layout is torch.sparse_bsr else {}
    ours, theirs = dense.to(D).to_sparse(layout=layout, **block), dense.to_sparse(layout=layout, **block)
    assert (ours.layout, ours.device.type) == (layout, D)
    assert ours.to_dense().cpu().equal(dense)
    assert (ours * 2).to_dense().cpu().equal(dense * 2)
    if layout is not torch.sparse_csc:
        assert (ours @ right.to(D)).cpu().equal(theirs @ right)
    moved = theirs.to(D)
    assert moved.device.type == D
    assert moved.cpu().device.type == "cpu"
    assert moved.cpu().to_dense().equal(dense)
    ours.values().mul_(3) if layout is not torch.sparse_coo else ours.mul_(3)
    assert ours.to_dense().cpu().equal(dense * 3)


def test_sparse_in_place_grows() -> None:
    a, b = (torch.sparse_coo_tensor([[i]], [2.0], (3,)) for i in (0, 2))
    ours = a.to(D)
    ours.add_(b.to(D))
    assert ours.to_dense().cpu().equal((a + b).to_dense())


def test_gradient_of_sparse_reduction_with_argument() -> None:
    results = []
    for device in ("cpu", D):
        left = draw(4, 4).relu().to_sparse_csr().to(device).requires_grad_()
        right = draw(4, 3).to(device).requires_grad_()
        torch.sparse.mm(left, right, "amax").sum().backward()
        results.append((left.grad.values().cpu(), right.grad.cpu()))
    assert all(a.equal(b) for a, b in zip(*results, strict=True))


def test_quantised() -> None:
    x = draw(3, 4)
    theirs = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    for ours in (torch.quantize_per_tensor(x.to(D), 0.1, 3, torch.quint8), theirs.to(D)):
        assert (ours.is_quantized, ours.device.type, ours.q_scale(), ours.q_zero_point()) == (True, D, 0.1, 3)
        assert ours.dequantize().cpu().equal(theirs.dequantize())
        assert ours.int_repr().cpu().equal(theirs.int_repr())
        assert ours.t()[1].cpu().dequantize().equal(theirs.t()[1].dequantize())
        assert torch.equal(ours.cpu(), theirs)
    made = torch._empty_affine_quantized((2, 3), scale=0.1, zero_point=0, dtype=torch.quint8, device=D)
    assert (made.is_quantized, made.device.type) == (True, D)


def test_quantized_by_channel_keeps_its_scales() -> None:
    x, scales, zeros = draw(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.long)
    theirs = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    ours = torch.quantize_per_channel(x.to(D), scales.to(D), zeros.to(D), 0, torch.qint8)
    for _ in range(2):
        assert ours.q_per_channel_scales().device.type == D
        assert ours.q_per_channel_scales().cpu().equal(theirs.q_per_channel_scales())
        assert ours.dequantize().cpu().equal(theirs.dequantize())


def test_nested() -> None:
    parts = [draw(2, 3), draw(4, 3)]
    theirs = torch.nested.nested_tensor(parts)
    for ours in (torch.nested.nested_tensor(parts, device=D), theirs.to(D)):
        assert (ours.is_nested, ours.device.type) == (True, D)
        assert all(a.cpu().equal(b) for a, b in zip((ours * 2).unbind(), (theirs * 2).unbind(), strict=True))
        assert torch.nested.to_padded_tensor(ours, 0.0).cpu().equal(torch.nested.to_padded_tensor(theirs, 0.0))
        assert ours.cpu().device.type == "cpu"
        assert ours._nested_tensor_size().device.type == "cpu"
    leaf = theirs.to(D).requires_grad_()
    torch.nested.to_padded_tensor(torch.softmax(leaf, -1), 0.0).sum().backward()
    assert (leaf.grad.is_nested, leaf.grad.device.type) == (True, D)


def test_encoder_without_padding_is_the_cpu_s() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 2).eval()
    x, padding = draw(2, 5, 8), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    with torch.no_grad():  # the form that goes through nested tensors
        theirs = net(x, src_key_padding_mask=padding)
        ours = net.to(D)(x.to(D), src_key_padding_mask=padding.to(D))
    assert ours.cpu().equal(theirs)


@pytest.mark.slow
def test_transforms() -> None:
    x = draw(3, 4)

    def f(x: Any) -> Any:
        return (x.sin() @ x.t()).sum()

    for g in (torch.func.grad(f), torch.func.hessian(f), torch.func.jacrev(torch.exp), torch.func.jacfwd(torch.exp)):
        assert g(x.to(D)).cpu().equal(g(x))
    noisy = torch.vmap(lambda row: row + torch.rand_like(row), randomness="different")
    torch.manual_seed(1)
    theirs = noisy(x)
    torch.manual_seed(1)
    assert noisy(x.to(D)).cpu().equal(theirs)


def test_zeros_without_memory() -> None:
    zeros, ones = torch._efficientzerotensor((2, 3), device=D), torch.ones(2, 3, device=D)
    for value in (zeros + ones, zeros * ones, zeros.clone(), torch.cat([zeros, ones]), zeros.conj() + ones):
        assert value.device.type == D
    assert (zeros + ones).cpu().equal(torch.ones(2, 3))
    assert zeros.cpu().equal(torch.zeros(2, 3))


def test_operator_without_a_kernel_is_an_error_with_a_fix() -> None:
    x = torch.ones(1, 1, 3, 3, device=D)
    with pytest.raises(NotImplementedError, match=r"no kernel .*\(CPU\).*register"):
        torch.cudnn_convolution(x, x, [0, 0], [1, 1], [1, 1], 1, False, False, False)


def test_operator_with_a_cpu_kernel_only_runs() -> None:
    library = torch.library.Library("layouts19", "DEF")
    try:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        assert torch.ops.layouts19.twice(torch.ones(2, device=D)).cpu().tolist() == [2, 2]
    finally:
        library._destroy()


def test_lazy_modules_convert_and_move() -> None:
    lazy = torch.nn.LazyLinear(3).to(torch.float64)
    assert lazy.weight.dtype is torch.float64
    assert lazy(torch.ones(2, 4, dtype=torch.float64)).shape == (2, 3)
    moved = torch.nn.LazyLinear(3).to(D)
    assert moved(torch.ones(2, 4, device=D)).device.type == D
    assert moved.weight.shape == (3, 4)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_packed_sequences_are_the_cpu_s(kind: Any) -> None:
    torch.manual_seed(0)
    results = []
    for device in ("cpu", D):
        torch.manual_seed(0)
        net = kind(4, 6, 2, bidirectional=True, dropout=0.5).to(device)
        given = torch.nn.utils.rnn.pack_padded_sequence(draw(5, 3, 4).to(device), [5, 3, 2])
        torch.manual_seed(1)
        out, state = net(given)
        out.data.square().sum().backward()
        results.append(
            [out.data, *(state if isinstance(state, tuple) else [state]), *(p.grad for p in net.parameters())]
        )
    assert all(a.detach().equal(b.detach().cpu()) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_lstm_under_autocast(options: dict[str, Any]) -> None:
    def results(device: str, lowered: bool) -> list[Any]:
        torch.manual_seed(0)
        net = torch.nn.LSTM(4, 4, **options).to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=lowered):
            out = net(draw(3, 2, 4).to(device))[0]
        out.float().sum().backward()
        return [tensor.detach().cpu() for tensor in (out, *(p.grad for p in net.parameters()))]

    ours = results(D, True)
    assert ours[0].dtype is torch.bfloat16
    for got, want in zip(ours, results("cpu", False), strict=True):
        torch.testing.assert_close(got.float(), want, rtol=2**-4, atol=2**-4)
    if not options and torch.ops.mkldnn._is_mkldnn_bf16_supported():  # without it the CPU refuses
        assert all(a.equal(b) for a, b in zip(ours, results("cpu", True), strict=True))


def test_lstm_under_autocast_of_float16() -> None:
    net = torch.nn.LSTM(4, 4).to(D)
    with torch.autocast(D, dtype=torch.float16):  # the CPU has no LSTM of float16
        assert net(draw(3, 2, 4).to(D))[0].isfinite().all()
