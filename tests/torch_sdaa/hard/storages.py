"""Tensors as bytes: views, copies of every kind, storages, transfer to other processes."""

from __future__ import annotations

import copy
import io
import pickle

import torch
from torch import Tensor, nn

from tests.torch_sdaa.hard.check import DEVICES, agree, check, network, refused, same


@check
def writes_through_views() -> None:
    def work(device: str) -> list[object]:
        x = torch.zeros(4, 4, device=device)
        x[1].add_(1)
        x.t()[2].fill_(5)
        x.view(-1)[3] = 9
        x[::2, 1:3] = torch.ones(2, 2, device=device)
        x.diagonal().mul_(3)
        x.as_strided((2, 2), (1, 4), 2).sub_(1)
        return [x, x.unfold(0, 2, 1).sum(), x.narrow(1, 1, 2), x.T.contiguous()]

    agree(work, *DEVICES)


@check
def resize_and_set() -> None:
    x = torch.zeros(4, 4, device="sdaa")
    y = torch.empty(0, device="sdaa")
    y.resize_(3, 3).fill_(2)
    assert y.sum().item() == 18
    z = torch.empty(0, device="sdaa")
    z.set_(x)
    assert z.data_ptr() == x.data_ptr()
    z.fill_(7)
    assert x.sum().item() == 7 * 16


@check
def storages_copy_and_move() -> None:
    storage = torch.arange(3.0, device="sdaa:1").untyped_storage()
    assert storage.device == torch.device("sdaa:1")
    assert storage.clone().device == storage.device
    assert storage.cpu().device.type == "cpu"
    assert storage.nbytes() == 12
    assert torch.tensor([], dtype=torch.float32).set_(storage.cpu()).tolist() == [0, 1, 2]
    assert torch.UntypedStorage(12, device="sdaa:2").device == torch.device("sdaa:2")


@check
def copies_of_tensors_that_are_not_contiguous() -> None:
    base = torch.arange(120.0).view(4, 5, 6)
    for view in (base.transpose(0, 2), base[::2, 1:, ::3], base[1].t(), base.expand(2, 4, 5, 6), base.flip(1)):
        moved = view.to("sdaa")
        same(moved, view)
        assert moved.stride() == view.to("cpu", copy=True).stride()
        on_card = base.to("sdaa")
        same(on_card.transpose(0, 2)[1:].clone(), base.transpose(0, 2)[1:])
        back = torch.empty(4, 6, 5).transpose(1, 2)
        same(back.copy_(on_card), base)


@check
def channels_last_stays_so() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    there = x.to("sdaa:1")
    assert there.is_contiguous(memory_format=torch.channels_last)
    same(there, x)
    assert there.cpu().is_contiguous(memory_format=torch.channels_last)
    assert there.clone().stride() == x.stride()
    assert torch.empty_like(there).stride() == x.stride()
    assert x.contiguous().to("sdaa", memory_format=torch.channels_last).stride() == x.stride()


@check
def channels_last_trains_as_on_the_cpu() -> None:
    def work(device: str) -> list[object]:
        model = network().to(device).to(memory_format=torch.channels_last)
        x = torch.randn(2, 3, 8, 8).to(device, memory_format=torch.channels_last)
        y = model(x)
        y.sum().backward()
        return [y, [p.grad for p in model.parameters()]]

    agree(work)


@check
def copies_between_devices() -> None:
    x = torch.randn(3, 4)
    first = x.to("sdaa:0")
    for device in DEVICES:
        there = first.to(device)
        assert there.device == torch.device(device)
        assert (there.data_ptr() == first.data_ptr()) == (device == "sdaa:0")
        same(there, x)
        target = torch.empty(4, 3, device=device)
        same(target.copy_(first.t()), x.t())


@check
def copies_that_change_the_dtype() -> None:
    x = torch.tensor([0.5, -2.0, 3.75, 1e6])
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.complex64):
        same(x.to("sdaa", dtype), x.to(dtype))
        same(x.to("sdaa").to("cpu", dtype), x.to(dtype))
        same(torch.empty(4, dtype=dtype, device="sdaa").copy_(x), x.to(dtype))


@check
def copies_broadcast() -> None:
    target = torch.empty(3, 4, device="sdaa")
    same(target.copy_(torch.arange(4.0)), torch.arange(4.0).expand(3, 4))
    same(target.copy_(torch.arange(3.0, device="sdaa:1")[:, None]), torch.arange(3.0)[:, None].expand(3, 4))


@check
def complex_views_and_lazy_bits() -> None:
    def work(device: str) -> list[object]:
        z = torch.randn(3, 3, dtype=torch.complex64).to(device)
        pairs = torch.view_as_real(z)
        pairs[..., 1].mul_(2)
        turned = z.conj()
        assert turned.is_conj()
        part = turned.imag
        assert part.is_neg()
        other = torch.empty_like(z)
        other.copy_(turned)
        return [z, z.real, turned.resolve_conj(), part.resolve_neg(), other, turned @ z, z.mH.clone(), turned.t() * 2]

    agree(work, "sdaa:0", "sdaa:3")
    z = torch.randn(2, dtype=torch.complex64, device="sdaa:0").conj()
    same(z.to("sdaa:1"), z.cpu())
    same(z.imag.cpu(), z.cpu().imag)


@check
def tensors_of_no_elements() -> None:
    def work(device: str) -> list[object]:
        x = torch.zeros(0, 3, device=device)
        w = torch.ones(3, 2, device=device, requires_grad=True)
        y = x @ w
        y.sum().backward()
        return [
            x + 1,
            x.sum(),
            x.sum(0),
            y,
            w.grad,
            torch.cat([x, torch.ones(2, 3, device=device)]),
            x.t().contiguous(),
        ]

    agree(work)
    assert torch.empty(0, device="sdaa:1").to("sdaa:2").device.index == 2
    refused(lambda: torch.empty(0, device="sdaa").max(), kind=(RuntimeError, IndexError))


@check
def scalars_and_lists() -> None:
    x = torch.tensor(2.5, device="sdaa")
    assert x.item() == 2.5
    assert float(x) == 2.5
    assert bool(x)
    assert torch.tensor([[1, 2], [3, 4]], device="sdaa:1").tolist() == [[1, 2], [3, 4]]
    assert "sdaa:1" in repr(torch.ones(2, device="sdaa:1"))
    same(x + torch.tensor(1.0), torch.tensor(3.5))  # a CPU tensor of no dimensions counts as a number


@check
def numpy_needs_the_cpu() -> None:
    x = torch.arange(3.0, device="sdaa")
    assert x.cpu().numpy().tolist() == [0, 1, 2]
    refused(x.numpy, "cpu", kind=TypeError)


@check
def copies_of_objects() -> None:
    x = torch.ones(2, device="sdaa:1", requires_grad=True)
    twin = copy.deepcopy(x)
    assert twin.device == x.device
    assert twin.requires_grad
    assert twin.data_ptr() != x.data_ptr()
    same(pickle.loads(pickle.dumps(x)), x)  # noqa: S301 - what was just written
    refused(copy.deepcopy(nn.Linear(2, 2).to("sdaa:1")).share_memory, "belongs to this process")


@check
def views_deepcopied_together_stay_views() -> None:
    base = torch.zeros(4, device="sdaa")
    both = copy.deepcopy([base, base[1:3]])
    both[1].fill_(1)
    assert both[0].tolist() == [0, 1, 1, 0]
    assert base.sum().item() == 0


@check
def saved_tensors_go_where_they_are_told() -> None:
    held = io.BytesIO()
    torch.save(network().to("sdaa:3").state_dict(), held)

    def loaded(where: object) -> Tensor:
        held.seek(0)
        value: Tensor = next(iter(torch.load(held, map_location=where).values()))
        return value

    forms = [None, "cpu", "sdaa:1", {"sdaa:3": "sdaa:0"}, lambda storage, _: storage, torch.device("sdaa", 2)]
    assert [str(loaded(form).device) for form in forms] == ["sdaa:3", "cpu", "sdaa:1", "sdaa:0", "cpu", "sdaa:2"]
    with torch.sdaa.device(1):
        assert loaded("sdaa").device == torch.device("sdaa:1")


@check
def saved_views_share_what_they_shared() -> None:
    held = io.BytesIO()
    base = torch.zeros(4, device="sdaa:2")
    torch.save({"base": base, "view": base[1:]}, held)
    held.seek(0)
    back = torch.load(held, weights_only=True)
    back["view"].fill_(3)
    assert back["base"].tolist() == [0, 3, 3, 3]
    assert back["base"].device.index == 2


@check
def data_is_replaced() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    weight.data = torch.full((2, 2), 3.0)
    placed = nn.Parameter(torch.ones(2, 2, device="sdaa"))
    placed.data = torch.full((2, 2), 3.0, device="sdaa")
    (placed * 2).sum().backward()
    same(placed.grad, torch.full((2, 2), 2.0))
    same(placed, weight)


@check
def indexing_of_every_kind() -> None:
    def work(device: str) -> list[object]:
        x = torch.arange(24.0).view(4, 6).to(device)
        rows = torch.tensor([0, 2], device=device)
        y = x.clone()
        y[rows, 1] = -1
        y[x > 20] = 0
        y.masked_fill_(x == 3, 5)
        y.masked_scatter_(x > 18, torch.arange(24.0, device=device).view(4, 6))
        y.index_add_(0, rows, torch.ones(2, 6, device=device))
        y.scatter_reduce_(1, torch.zeros(4, 1, dtype=torch.long, device=device), x[:, :1], "amax")
        y.index_put_((rows, rows), torch.ones(2, device=device), accumulate=True)
        return [
            y,
            x[torch.tensor([0])],  # an index may lie on the CPU
            x[:, rows],
            x[x > 5],
            x.take_along_dim(x.argsort(1), 1),
            x.nonzero(),
            torch.bincount(x.long().view(-1)),
            torch.histc(x, 5),
            x.unique(return_counts=True),
            torch.where(x > 2, x, 0.0),
        ]

    agree(work, "sdaa:0", "sdaa:2")


@check
def pinned_memory() -> None:
    x = torch.arange(8.0).pin_memory()
    assert x.is_pinned()
    assert not torch.arange(8.0).is_pinned()
    there = x.to("sdaa", non_blocking=True)
    back = torch.empty(8, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.sdaa.synchronize()
    same(back, x)
    assert x[2:5].is_pinned()
