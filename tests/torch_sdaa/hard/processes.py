"""Data loaders and child processes."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.torch_sdaa.hard.check import alone, check, costly_check, refused, same


class Touching(Dataset[torch.Tensor]):
    """Samples that a worker creates on the device."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.ones(2, device="sdaa").cpu() * i


@costly_check
def workers_that_fork() -> None:
    numbers = TensorDataset(torch.randn(16, 3), torch.arange(16))
    total = 0
    for images, labels in DataLoader(numbers, 4, num_workers=2, pin_memory=True):
        assert images.is_pinned()
        there = images.to("sdaa", non_blocking=True)
        total += labels.sdaa(non_blocking=True).sum().item()
        same(there, images)
    assert total == sum(range(16))


@costly_check
def training_with_a_pinning_thread_is_the_cpus() -> None:
    """The pinning thread calls set_num_threads(1), which backward's threads would inherit."""
    torch.manual_seed(0)
    held = TensorDataset(torch.randn(32, 3, 16, 16))
    torch.manual_seed(1)
    layer = torch.nn.Conv2d(3, 8, 3)
    twin = torch.nn.Conv2d(3, 8, 3)
    twin.load_state_dict(layer.state_dict())
    twin.to("sdaa:1")
    for (x,) in DataLoader(held, 16, num_workers=1, pin_memory=True):
        layer(x).square().mean().backward()
        twin(x.to("sdaa:1", non_blocking=True)).square().mean().backward()
    same([p.grad for p in twin.parameters()], [p.grad for p in layer.parameters()])


@costly_check
def a_forked_worker_that_touches_the_device_is_refused() -> None:
    torch.ones(1, device="sdaa")
    refused(lambda: next(iter(DataLoader(Touching(), 2, num_workers=1))), "forked", "spawn")


@costly_check
def a_spawned_worker_may_use_the_device() -> None:
    loader = DataLoader(Touching(), 2, num_workers=1, multiprocessing_context="spawn")
    same(next(iter(loader)), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))


@costly_check
def a_fork_before_the_first_use_may_use_the_device() -> None:
    code = """
import os
child = os.fork()
if not child:
    ok = (torch.ones(3, device="sdaa:1") + 1).sum().item() == 6
    x = torch.ones(3, device="sdaa:1", requires_grad=True)
    (x * 2).sum().backward()
    os._exit(0 if ok and x.grad.sum().item() == 6 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert alone(code) == "0"


@costly_check
def the_parent_works_after_a_fork() -> None:
    code = """
import os
x = torch.ones(300, 300, device="sdaa", requires_grad=True)
(x @ x).sum().backward()
child = os.fork()
if not child:
    try:
        torch.ones(1, device="sdaa")
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
x.grad = None
(x @ x).sum().backward()
print(code, x.grad[0, 0].item())
"""
    assert alone(code) == "7 600.0"


@costly_check
def processes_that_are_spawned_get_tensors() -> None:
    code = """
import torch.multiprocessing as mp
from operator import itemgetter
def main():
    with mp.get_context("spawn").Pool(1) as pool:
        print(pool.apply(torch.sum, (torch.ones(3),)).item())
if __name__ == "__main__":
    main()
"""
    assert alone(code) == "3.0"


@check
def pinned_loaders_without_workers() -> None:
    for (x,) in DataLoader(TensorDataset(torch.arange(8.0)), 4, pin_memory=True):
        assert x.is_pinned()
        same(x.to("sdaa", non_blocking=True), x)
