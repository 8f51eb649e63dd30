"""Calls that raise an error as on CUDA, and valid calls that look similar."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

from tests.torch_sdaa.hard.check import agree, check, costly_check, refused, same

TWO = "at least two devices"


class OnTheDevice(Dataset[Tensor]):
    """Samples that a worker returns on the device."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Tensor:
        return torch.full((2,), float(i), device="sdaa")


@check
def a_number_on_the_host_is_no_result() -> None:
    number, x = torch.tensor(1.0), torch.ones(3, device="sdaa")
    same(x + number, torch.full((3,), 2.0))  # read, it may lie on the host
    for work in (
        lambda: number.add_(x[0]),
        lambda: torch.sum(x, dim=0, out=number),
        lambda: torch.add(x[0], x[0], out=number),
    ):
        refused(work, TWO)
    assert number.untyped_storage().device.type == "cpu"
    assert float(number) == 1


@check
def the_hosts_tensors_are_not_indexed_by_the_devices() -> None:
    x, places = torch.arange(5.0), torch.tensor([1, 2], device="sdaa")
    refused(lambda: x[places], TWO)
    refused(lambda: x[x.to("sdaa") > 2], TWO)
    refused(lambda: x.__setitem__(places, 1.0), TWO)
    refused(lambda: x.__setitem__(places.cpu(), torch.ones(2, device="sdaa")), TWO)
    refused(lambda: x.to("sdaa").index_put_((places,), torch.ones(2)), TWO)
    assert x.untyped_storage().device.type == "cpu"
    assert x.tolist() == [0, 1, 2, 3, 4]
    same(x.to("sdaa")[places.cpu()], torch.tensor([1.0, 2.0]))  # the other way is allowed, as on CUDA


@check
def a_convolution_takes_tensors_of_one_device() -> None:
    x, weight = torch.ones(1, 1, 3, 3, device="sdaa:1"), torch.ones(1, 1, 2, 2)
    refused(lambda: functional.conv2d(x, weight), TWO, "sdaa:1 and cpu")
    refused(lambda: functional.conv2d(x, weight.to("sdaa:0")), TWO, "sdaa:1 and sdaa:0")
    refused(lambda: functional.conv2d(x, weight.to("sdaa:1"), torch.ones(1)), TWO)


@check
def storages_that_are_set_grow_and_stay_on_their_device() -> None:
    def work(device: str) -> Tensor:
        x = torch.ones(2, device=device)
        y = torch.empty(0, device=device).set_(x.untyped_storage(), 0, (3, 4))
        y.fill_(2)
        return torch.cat([x, y.flatten()])

    agree(work, "sdaa:0", "sdaa:2")
    storage = torch.ones(2, device="sdaa:1").untyped_storage()
    refused(lambda: torch.empty(0, device="sdaa:0").set_(storage), "different device")
    refused(lambda: torch.empty(0, device="sdaa:1").set_(storage, -1, (1,)), "offset")


@check
def generators_are_listed_copied_and_pickled() -> None:
    assert [g.device.index for g in torch.sdaa.default_generators] == [0, 1, 2, 3]
    assert torch.sdaa.default_generators[-1] is torch.sdaa.default_generators[3]
    refused(lambda: torch.sdaa.default_generators[4], "this process sees 4 devices", kind=IndexError)
    for device in ("sdaa:1", "cpu"):
        generator = torch.Generator(device=device).manual_seed(3)
        torch.rand(2, generator=generator, device=device)
        twins = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), generator.clone_state()]  # noqa: S301
        wanted = torch.rand(3, generator=generator, device=device)
        for twin in twins:
            assert twin.device == generator.device
            same(torch.rand(3, generator=twin, device=device), wanted)


@check
def a_parameters_data_moves() -> None:
    p = nn.Parameter(torch.ones(2))
    (p * 3).sum().backward()
    p.grad = None
    for device in ("sdaa", "sdaa:2", "cpu", "sdaa:1"):
        p.data = p.data.to(device)
        (p * 2).sum().backward()
        assert p.grad is not None
        assert p.grad.device == p.device == torch.empty(0, device=device).device
        same(p.grad, torch.full((2,), 2.0))
        p.grad = None


@check
def memory_of_the_device_is_not_pinned() -> None:
    for make in (torch.empty, torch.zeros, torch.rand):
        refused(lambda make=make: make(3, device="sdaa", pin_memory=True), "Only dense CPU tensors can be pinned")
    refused(lambda: torch.full((2,), 1.0, device="sdaa", pin_memory=True), "can be pinned")


@check
def deterministic_memory_is_filled_as_on_the_cpu() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        agree(lambda d: [torch.empty(3, device=d), torch.empty_strided((2,), (1,), dtype=torch.long, device=d)])
    finally:
        torch.use_deterministic_algorithms(False)


@check
def autocast_refuses_the_entropy_of_probabilities() -> None:
    x = torch.full((2,), 0.5, device="sdaa")
    with torch.autocast("sdaa", torch.bfloat16):
        refused(lambda: functional.binary_cross_entropy(x, x), "not safe under autocast", "with_logits")
        assert torch.norm(x.bfloat16(), 2, dim=0).dtype == torch.float32
        assert functional.binary_cross_entropy_with_logits(x, x).dtype == torch.float32
    functional.binary_cross_entropy(x, x)


@check
def a_part_of_the_memory_is_all_there_is() -> None:
    total = torch.sdaa.mem_get_info(1)[1]
    torch.sdaa.set_per_process_memory_fraction(0.25, "sdaa:1")
    try:
        assert torch.sdaa.get_per_process_memory_fraction(1) == 0.25
        words = ("SDAA out of memory", "set_per_process_memory_fraction leaves this process 3824 MiB")
        refused(lambda: torch.empty(total // 2, dtype=torch.uint8, device="sdaa:1"), *words)
        torch.empty(1 << 20, device="sdaa:1")
    finally:
        torch.sdaa.set_per_process_memory_fraction(1.0, 1)
    refused(lambda: torch.sdaa.set_per_process_memory_fraction(1.5), "0 to 1", kind=ValueError)
    refused(lambda: torch.sdaa.set_per_process_memory_fraction(1), "float", kind=TypeError)


@check
def the_statistics_have_cudas_names() -> None:
    x = [torch.ones(1000, device="sdaa:2") for _ in range(3)]
    stats = torch.sdaa.memory_stats(2)
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        assert stats[f"{name}.all.peak"] >= stats[f"{name}.all.current"] >= 3 * x[0].nbytes
    assert stats["allocation.all.current"] == stats["active.all.current"] >= 3
    assert stats["num_alloc_retries"] == 0
    assert all(torch.accelerator.memory_stats(2)[name] == value for name, value in stats.items())


@check
def averaged_models_are_the_cpus() -> None:
    def work(device: str) -> list[Tensor]:
        model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7)).to(device)
        many: Any = get_ema_multi_avg_fn(0.9)
        averages = [AveragedModel(model), AveragedModel(model, multi_avg_fn=many), AveragedModel(model, device="cpu")]
        with torch.no_grad():
            for _ in range(4):
                for p in model.parameters():
                    p.add_(torch.randn(p.shape).to(device))
                for average in averages:
                    average.update_parameters(model)
        return [value for average in averages for value in average.state_dict().values()]

    agree(work)


@check
def the_profiler_sorts_by_the_devices_name() -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as seen:
        torch.ones(64, 64, device="sdaa").mm(torch.ones(64, 64, device="sdaa"))
    averages = seen.key_averages()
    assert "aten::mm" in averages.table(sort_by="sdaa_time_total")
    assert max(each.self_sdaa_time_total for each in averages) > 0


@costly_check
def the_default_compiler_says_which_one_to_use() -> None:
    layer = nn.Linear(2, 2).to("sdaa")
    x = torch.ones(1, 2, device="sdaa")
    try:
        refused(lambda: torch.compile(layer)(x), "inductor", "backend='sdaa'", kind=Exception)
        same(torch.compile(layer, backend="aot_eager")(x), layer(x))
    finally:
        torch._dynamo.reset()


@costly_check
def a_workers_batch_on_the_device_is_refused() -> None:
    loader = DataLoader(OnTheDevice(), 2, num_workers=1, multiprocessing_context="spawn", timeout=100)
    refused(lambda: next(iter(loader)), "DataLoader worker process 0", "made a batch on sdaa:0")
    same(next(iter(DataLoader(OnTheDevice(), 2))), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
