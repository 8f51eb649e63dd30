"""Threads: each has its own device; threads of backward compute like the thread that owns the device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from tests.torch_sdaa.hard.check import DEVICES, alone, check, costly_check, images, network, same


def in_threads(work: Callable[[int], None], count: int = 4) -> None:
    """Run ``work(0)``, ... in threads, and raise the first error."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, i) for i in range(count)]:
            done.result()


@check
def backward_in_threads_on_all_devices() -> None:
    x = torch.randn(120, 120)
    plain = x.clone().requires_grad_()
    (plain @ plain).sum().backward()

    def work(i: int) -> None:
        for _ in range(2):
            there = x.to(f"sdaa:{i}").requires_grad_()
            (there @ there).sum().backward()
            assert there.grad is not None
            assert there.grad.device.index == i
            same(there.grad, plain.grad)

    in_threads(work)


@check
def a_threads_device_is_its_own() -> None:
    barrier = threading.Barrier(4)

    def work(i: int) -> None:
        assert torch.sdaa.current_device() == 0
        torch.sdaa.set_device(i)
        barrier.wait()
        assert torch.sdaa.current_device() == i
        assert torch.empty(1, device="sdaa").device.index == i

    before = torch.sdaa.current_device()
    in_threads(work)
    assert torch.sdaa.current_device() == before


@check
def threads_share_a_model() -> None:
    model, x = network().eval().to("sdaa:1"), images(4)
    wanted = model(x.to("sdaa:1")).cpu()

    def work(_: int) -> None:
        for _ in range(5):
            with torch.no_grad():
                same(model(x.to("sdaa:1")), wanted)

    in_threads(work)


@check
def a_threads_memory_is_freed_with_it() -> None:
    before = torch.sdaa.memory_allocated(2)
    kept = threading.local()

    def work() -> None:
        kept.x = torch.zeros(1000, device="sdaa:2")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert torch.sdaa.memory_allocated(2) == before


@check
def set_num_threads_by_another_thread() -> None:
    """The number that any thread passes to set_num_threads applies to backward's threads, and splits sums."""
    owner = torch.get_num_threads()
    x = torch.randn(64, 3, 16, 16)
    plain = network()
    state = {name: value.clone() for name, value in plain.state_dict().items()}
    plain(x).sum().backward()
    wanted = [p.grad for p in plain.parameters()]
    for count in (1, 3):
        thread = threading.Thread(target=torch.set_num_threads, args=(count,))
        thread.start()
        thread.join()
        for device in DEVICES:
            model = network()
            model.load_state_dict(state)
            model.to(device)(x.to(device)).sum().backward()
            same([p.grad for p in model.parameters()], wanted)
    torch.set_num_threads(owner)


@check
def flushed_denormals_reach_backward() -> None:
    tiny = torch.full((4,), 1e-20)
    owner = torch.sdaa.current_device()

    def gradient(device: str) -> torch.Tensor:
        x = torch.full((4,), 1e-20, device=device, requires_grad=True)
        (x * (tiny.to(device) * 1e-5)).sum().backward()
        assert x.grad is not None
        return x.grad * 1e-15

    assert torch.sdaa.current_device() == owner
    kept = [gradient(device).cpu() for device in ("cpu", "sdaa:1")]
    try:
        if not torch.set_flush_denormal(True):
            return  # this processor cannot
        flushed = [gradient(device).cpu() for device in ("cpu", "sdaa:1")]
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(kept[0], kept[1])
    assert kept[0].ne(0).all()
    assert torch.equal(flushed[0], flushed[1])
    assert flushed[0].eq(0).all()


@check
def many_small_backwards_in_threads() -> None:
    def work(i: int) -> None:
        w = torch.ones(3, device=f"sdaa:{i % 4}", requires_grad=True)
        for _ in range(30):
            (w * w).sum().backward()
        same(w.grad, torch.full((3,), 60.0))

    in_threads(work, 6)


@check
def autograd_in_one_thread() -> None:
    with torch.autograd.set_multithreading_enabled(False):
        x = torch.ones(3, device="sdaa:2", requires_grad=True)
        (x * 2).sum().backward()
    same(x.grad, torch.full((3,), 2.0))


@costly_check
def exit_while_backwards_threads_work() -> None:
    """One device's part fails, so backward ends; the other threads are still busy when the process ends.

    A daemon thread that is itself in backward aborts the process with PyTorch on the CPU too; so that is not asked.
    """
    code = """
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, grad):
        raise ValueError("on purpose")
heads = []
for i in range(1, 4):
    x = torch.randn(150, 150, device=f"sdaa:{i}", requires_grad=True)
    y = x
    for _ in range(40): y = (y @ x).tanh()
    y.register_hook(lambda grad: grad * 2)
    heads.append(y.sum().to("sdaa:0"))
heads.append(Fails.apply(torch.ones(1, device="sdaa:0", requires_grad=True)).sum())
try:
    sum(heads).backward()
except ValueError as error:
    print(error)
"""
    for _ in range(2):
        assert alone(code) == "on purpose"


@costly_check
def exit_right_after_backward_with_python_nodes() -> None:
    code = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.held = [object() for _ in range(1000)]
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
for i in range(4):
    x = torch.ones(9, device=f"sdaa:{i}", requires_grad=True)
    y = x
    for _ in range(50): y = Own.apply(y)
    y.register_hook(lambda grad: grad)
    y.sum().backward()
print("left")
"""
    for _ in range(2):
        assert alone(code) == "left"


@costly_check
def exit_with_streams_events_and_profilers_alive() -> None:
    code = """
held = [torch.sdaa.Stream(i) for i in range(4)] + [torch.sdaa.Event(enable_timing=True) for _ in range(4)]
for event in held[4:]: event.record()
x = torch.ones(1000, device="sdaa:3")
g = torch.Generator(device="sdaa:1")
print("left")
"""
    assert alone(code) == "left"
