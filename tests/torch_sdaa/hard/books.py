"""Device memory: allocations, releases, and the message without any."""

from __future__ import annotations

import gc

import torch
from torch import nn

from tests.torch_sdaa.hard.check import check, images, network, refused

MIB = 1 << 20


def taken(device: int = 0) -> int:
    gc.collect()
    return int(torch.sdaa.memory_allocated(device))


@check
def memory_is_taken_and_given_back() -> None:
    before = taken()
    x = torch.zeros(MIB, device="sdaa:0")
    assert taken() - before == 4 * MIB
    assert torch.sdaa.mem_get_info(0)[0] == torch.sdaa.mem_get_info(0)[1] - taken()
    del x
    assert taken() == before


@check
def a_view_keeps_its_storage_and_counts_once() -> None:
    before = taken()
    x = torch.zeros(MIB, device="sdaa:0")
    row = x[10:20]
    view = row.view(2, 5)
    del x, row
    assert taken() - before == 4 * MIB
    del view
    assert taken() == before


@check
def the_accelerators_figures_are_the_devices() -> None:
    x = torch.zeros(MIB, device="sdaa:0")
    assert torch.accelerator.memory_allocated(0) == torch.sdaa.memory_allocated(0) >= x.nbytes
    assert torch.accelerator.max_memory_allocated(0) == torch.sdaa.max_memory_allocated(0)
    assert torch.accelerator.memory_reserved(0) >= torch.accelerator.memory_allocated(0)


@check
def the_peak_is_kept_until_it_is_reset() -> None:
    torch.sdaa.reset_peak_memory_stats(1)
    before = taken(1)
    x = torch.zeros(MIB, device="sdaa:1")
    del x
    assert torch.sdaa.max_memory_allocated(1) == before + 4 * MIB
    torch.sdaa.reset_peak_memory_stats(1)
    assert torch.sdaa.max_memory_allocated(1) == before
    stats = torch.sdaa.memory_stats(1)
    assert stats["allocated_bytes.all.current"] == before
    assert stats["allocated_bytes.all.peak"] == before


@check
def one_device_does_not_take_anothers_memory() -> None:
    before = taken(1)
    x = torch.ones(MIB, device="sdaa:2")
    y = (x + 1).sum()
    assert taken(1) == before
    assert y.device.index == 2


@check
def too_much_is_refused_with_both_figures() -> None:
    before = taken()
    error = refused(lambda: torch.empty(1 << 34, device="sdaa:0"), "65536 MiB", kind=torch.OutOfMemoryError)
    assert "free" in error
    assert "15296 MiB" in error
    assert taken() == before


@check
def a_result_that_does_not_fit_is_refused() -> None:
    held = [torch.empty(1 << 30, device="sdaa:3", dtype=torch.float16) for _ in range(7)]
    row = torch.zeros(1, 1, device="sdaa:3", dtype=torch.float64)
    before = taken(3)
    refused(lambda: row.expand(1 << 29, 1) * 1.0, "out of memory", kind=torch.OutOfMemoryError)
    assert taken(3) == before
    assert len(held) == 7


@check
def after_out_of_memory_the_device_works() -> None:
    refused(lambda: torch.empty(1 << 34, device="sdaa:0"), kind=torch.OutOfMemoryError)
    torch.sdaa.empty_cache()
    assert (torch.ones(3, device="sdaa:0") + 1).tolist() == [2, 2, 2]


@check
def empty_tensors_take_nothing() -> None:
    before = taken()
    empty = [torch.empty(0, device="sdaa:0"), torch.zeros(3, 0, 2, device="sdaa:0")]
    assert taken() == before
    assert all(t.numel() == 0 for t in empty)


@check
def backward_frees_the_graph() -> None:
    model, x = network().to("sdaa:0"), images(4, 16).to("sdaa:0")
    before = taken()
    loss = model(x).sum()
    assert taken() > before
    loss.backward()
    del loss
    gradients = sum(-(-p.nbytes // 512) * 512 for p in model.parameters())
    assert taken() == before + gradients
    model.zero_grad()
    assert taken() == before


@check
def a_kept_graph_is_freed_when_it_is_dropped() -> None:
    x = torch.ones(MIB, device="sdaa:0", requires_grad=True)
    before = taken()
    loss = (x.exp() * 2).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad is not None
    x.grad = None
    del loss
    assert taken() == before


@check
def an_error_in_a_step_leaks_nothing() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(32, 8)).to("sdaa:0")
    before = taken()
    refused(lambda: model(torch.randn(16, 64, device="sdaa:0")))
    assert taken() == before


@check
def a_cycle_is_collected() -> None:
    before = taken()
    held: dict[str, object] = {"x": torch.zeros(MIB, device="sdaa:0")}
    held["self"] = held
    del held
    assert taken() == before


@check
def an_optimizers_state_is_counted() -> None:
    layer = nn.Linear(256, 256, bias=False).to("sdaa:0")
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 256, device="sdaa:0")).sum().backward()
    before = taken()
    optimizer.step()
    assert taken() - before >= 2 * layer.weight.nbytes
    del optimizer
    assert taken() == before


@check
def resizing_a_storage_moves_the_books() -> None:
    before = taken()
    x = torch.zeros(1024, device="sdaa:0")
    x.resize_(4096)
    assert taken() - before == 4096 * 4
    assert x[:1024].eq(0).all()
    x.untyped_storage().resize_(0)
    assert taken() == before
