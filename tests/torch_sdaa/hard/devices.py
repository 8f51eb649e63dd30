"""Device arguments, device properties, and errors."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import nn

from tests.torch_sdaa.hard.check import DEVICES, check, images, network, refused, same
from torch_sdaa.loading.core import C


@check
def the_module_is_there() -> None:
    assert sys.modules["torch.sdaa"] is torch.sdaa
    assert torch.sdaa.is_available()
    assert torch.sdaa.device_count() == 4
    assert torch.get_device_module("sdaa") is torch.sdaa
    assert torch.sdaa.get_device_name(0)
    assert torch.sdaa.get_device_properties("sdaa:1").total_memory == 15296 << 20
    assert torch.device("sdaa", 2) == torch.device("sdaa:2")


@check
def a_device_without_a_number_is_the_current_one() -> None:
    before = torch.sdaa.current_device()
    torch.sdaa.set_device(2)
    try:
        assert torch.ones(2).to("sdaa").device.index == 2
        assert torch.ones(2, device="sdaa").device.index == 2
        assert nn.Linear(1, 1).sdaa().weight.device.index == 2
    finally:
        torch.sdaa.set_device(before)


@check
def contexts_of_devices() -> None:
    before = torch.sdaa.current_device()
    x = torch.ones(1, device="sdaa:3")
    with torch.sdaa.device(1):
        assert torch.sdaa.current_device() == 1
        with torch.sdaa.device_of(x):
            assert torch.sdaa.current_device() == 3
        with torch.sdaa.device(None):
            assert torch.sdaa.current_device() == 1
    assert torch.sdaa.current_device() == before


@check
def an_error_leaves_the_device_as_it_was() -> None:
    before = torch.sdaa.current_device()
    with torch.sdaa.device(2):
        refused(lambda: torch.ones(2, 3, device="sdaa") @ torch.ones(2, 3, device="sdaa"))
        assert torch.sdaa.current_device() == 2
    assert torch.sdaa.current_device() == before


@check
def a_default_device() -> None:
    with torch.device("sdaa:1"):
        layer = nn.Linear(2, 2)
        assert layer.weight.device.index == 1
        assert torch.arange(3).device.index == 1
    torch.set_default_device("sdaa:2")
    try:
        assert torch.zeros(1).device.index == 2
    finally:
        torch.set_default_device(None)


@check
def an_index_that_is_not_there() -> None:
    refused(lambda: torch.ones(2, device="sdaa:9"), "9")
    refused(lambda: torch.sdaa.set_device(7), "7")
    assert (torch.ones(2, device="sdaa") + 1).sum().item() == 4


@check
def tensors_on_two_devices_are_refused() -> None:
    x = torch.ones(2, 2, device="sdaa:0")
    refused(lambda: x + torch.ones(2, 2), "same device")
    refused(lambda: torch.ones(2, 2) + x, "same device")
    refused(lambda: x + torch.ones(2, 2, device="sdaa:1"), "same device")
    refused(lambda: F.linear(x, torch.ones(2, 2)), "same device")
    refused(lambda: torch.cat([x, torch.ones(2, 2, device="sdaa:1")]), "same device")
    refused(lambda: nn.Linear(2, 2)(x), "same device")


@check
def every_device_computes_the_same() -> None:
    torch.manual_seed(3)
    model, x = network(), images(3)
    model.eval()
    with torch.no_grad():
        wanted = model(x)
        for device in DEVICES:
            same(model.to(device)(x.to(device)), wanted)


@check
def a_model_moves_while_a_result_is_alive() -> None:
    model, x = network(), images()
    wanted = model(x)
    same(model.to("sdaa:1").eval()(x.to("sdaa:1")).shape, wanted.shape)
    moved = model(x.to("sdaa:1"))
    model.to("sdaa:2")
    assert moved.device.index == 1
    assert model[0].weight.device.index == 2


@check
def methods_and_types_named_after_the_device() -> None:
    x = torch.ones(2).sdaa(1)
    assert x.is_sdaa
    assert x.device.index == 1
    assert not torch.ones(2).is_sdaa
    assert x.type() == "torch.sdaa.FloatTensor"
    assert x.untyped_storage().is_sdaa
    assert network().sdaa(2)[0].weight.device.index == 2


@check
def tensors_of_a_type() -> None:
    made = torch.sdaa.FloatTensor([1.0, 2.0])
    assert made.device.type == "sdaa"
    assert made.dtype is torch.float32
    assert made.tolist() == [1, 2]
    assert isinstance(made, torch.sdaa.FloatTensor)
    assert not isinstance(torch.ones(2), torch.sdaa.FloatTensor)
    assert torch.sdaa.LongTensor(3).shape == (3,)
    assert torch.ones(2).type("torch.sdaa.HalfTensor").dtype is torch.float16


@check
def capsules_of_dlpack() -> None:
    x = torch.arange(3.0, device="sdaa:1")
    kind, index = x.__dlpack_device__()
    assert index == 1
    assert int(kind) not in (1, 2)  # neither the CPU's memory nor CUDA's
    twin = torch.from_dlpack(x)
    twin[0] = 7
    assert x[0].item() == 7
    assert twin.device == x.device
    same(torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x)), x)


@check
def data_parallel_is_refused_in_one_line() -> None:
    text = refused(
        lambda: nn.DataParallel(network().sdaa(0), device_ids=[0, 1])(images(4).sdaa(0)),
        "DistributedDataParallel",
    )
    assert "\n" not in text


@check
def an_operator_without_a_kernel_says_so() -> None:
    x = torch.ones(2, 2, device="sdaa")
    C.deny({"aten::mm"})
    try:
        refused(lambda: x @ x, "aten::mm", "SDAA", kind=NotImplementedError)
    finally:
        C.deny(set())
    same(x @ x, torch.full((2, 2), 2.0))


@check
def warnings_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = network().to("sdaa")
        model(images().to("sdaa")).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.optim.AdamW(model.parameters()).step()
