"""Tensors of other layouts and dtypes: sparse, quantised, nested."""

from __future__ import annotations

import torch
from torch import nn

from tests.torch_sdaa.hard.check import agree, check, refused, same


@check
def sparse_tensors() -> None:
    def work(device: str) -> object:
        dense = (torch.eye(3) * torch.arange(1.0, 4)).to(device)
        x = dense.to_sparse()
        twice = (x + x).coalesce()
        return [x @ torch.ones(3, 2, device=device), twice.to_dense(), x.sum(), twice.values(), x.t().to_dense()]

    agree(work, "sdaa:0", "sdaa:1")


@check
def sparse_tensors_move() -> None:
    x = torch.sparse_coo_tensor([[0, 2], [1, 0]], [3.0, 4.0], (3, 2))
    there = x.to("sdaa:1")
    assert there.is_sparse
    assert there.device == torch.device("sdaa:1")
    same(there.to("sdaa:2").to_dense(), x.to_dense())
    same(there.cpu().to_dense(), x.to_dense())
    made = torch.sparse_coo_tensor([[0, 2], [1, 0]], [3.0, 4.0], (3, 2), device="sdaa:3")
    same(made.to_dense(), x.to_dense())


@check
def sparse_products_have_gradients() -> None:
    def work(device: str) -> object:
        x = torch.eye(3).to_sparse().to(device).requires_grad_()
        w = torch.randn(3, 2).to(device).requires_grad_()
        torch.sparse.mm(x, w).sum().backward()
        return [w.grad, x.grad.to_dense()]  # type: ignore[union-attr]

    agree(work)


@check
def sparse_embeddings_train() -> None:
    def work(device: str) -> object:
        table = nn.Embedding(10, 4, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(table.parameters())
        table(torch.tensor([1, 2, 2], device=device)).sum().backward()
        assert table.weight.grad is not None
        assert table.weight.grad.is_sparse
        optimizer.step()
        return table.weight

    agree(work, "sdaa:0", "sdaa:3")


@check
def bags_of_embeddings() -> None:
    def work(device: str) -> object:
        results = []
        for mode in ("sum", "mean", "max"):
            bag = nn.EmbeddingBag(10, 4, mode=mode).to(device)
            y = bag(torch.tensor([1, 2, 3], device=device), torch.tensor([0, 2], device=device))
            y.sum().backward()
            results += [y, bag.weight.grad]
        return results

    agree(work)


@check
def quantised_tensors() -> None:
    x = torch.linspace(-1, 1, 5)
    wanted = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    got = torch.quantize_per_tensor(x.to("sdaa"), 0.1, 0, torch.qint8)
    assert got.device.type == "sdaa"
    assert got.is_quantized
    same(got.int_repr(), wanted.int_repr())
    same(got.dequantize(), wanted.dequantize())


@check
def quantised_tensors_of_channels() -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    scales, zeros = torch.tensor([0.1, 0.05]), torch.tensor([0, 1])
    wanted = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    got = torch.quantize_per_channel(x.to("sdaa"), scales.to("sdaa"), zeros.to("sdaa"), 0, torch.qint8)
    same(got.dequantize(), wanted.dequantize())


@check
def training_that_knows_of_quantisation() -> None:
    def work(device: str) -> object:
        x = torch.randn(6).to(device).requires_grad_()
        y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
        y.sum().backward()
        return [y, x.grad]

    agree(work)


@check
def nested_tensors() -> None:
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="sdaa", layout=torch.jagged)
    y = x.sin() * 2
    assert y.device.type == "sdaa"
    same(y.values(), torch.ones(5).sin() * 2)
    same(list(y.unbind()), [torch.ones(2).sin() * 2, torch.ones(3).sin() * 2])


@check
def numbers_of_every_dtype() -> None:
    def work(device: str) -> object:
        whole = torch.tensor([1, 2, 200]).to(device)
        results = []
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool):
            x = whole.to(dtype)
            results += [x, x.sum(), x == x, x.to(torch.float32)]
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex128):
            x = whole.to(dtype)
            results += [x * 1.5, x.mean()]
        small = whole.float().to(torch.float8_e4m3fn)
        return [*results, small.float(), whole.bitwise_xor(3), whole // 3, whole.clamp(2, 5).to(torch.uint8)]

    agree(work, "sdaa:0", "sdaa:2")


@check
def infinities_and_nan() -> None:
    def work(device: str) -> object:
        x = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0, 3e38]).to(device)
        return [x * 10, x.nan_to_num(), x.sum(), x.isnan(), x.sign(), 1 / x, x.max(), x.nansum(), x.sort()]

    agree(work)


@check
def masked_and_ragged_refusals_are_plain() -> None:
    refused(lambda: torch.ones(2, 3, device="sdaa") @ torch.ones(2, 3, device="sdaa"), "cannot be multiplied")
    refused(lambda: torch.ones(3, device="sdaa")[5], "out of bounds", kind=IndexError)
    refused(lambda: torch.ones(3, device="sdaa").view(2, 2), "invalid for input of size")
