"""Cases from PyTorch's device-generic tests: overlapping memory, set storages, indices, fills, forked processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

import torch_sdaa  # noqa: E402, F401 - makes the device

pytestmark = pytest.mark.torch

Write = Callable[["torch.Tensor", "torch.Tensor"], object]


def masked_by_itself(mask: torch.Tensor) -> torch.Tensor:
    return mask[1:].masked_fill_(mask[:-1], True)


OVERLAPS: dict[str, Write] = {
    "copy_": lambda x, i: x[1:].copy_(x[:-1]),
    "add_": lambda x, i: x[1:].add_(x[:-1]),
    "add.out": lambda x, i: torch.add(x[:-1], 1, out=x[1:]),
    "index_add_": lambda x, i: x.index_add_(0, i, x[:3]),
    "index_copy_": lambda x, i: x.index_copy_(0, i, x[:3]),
    "index_put_": lambda x, i: x.index_put_((i,), x[:3]),
    "put_": lambda x, i: x.put_(i, x[:3]),
    "masked_fill_": lambda x, i: masked_by_itself(x.bool()),
    "scatter_": lambda x, i: x.scatter_(0, i, x[:3]),
    "cat.out": lambda x, i: torch.cat([x[:3], x[:3]], out=x),
}


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def refusal(write: Write, device: str) -> str:
    x, index = torch.arange(6.0, device=device), torch.tensor([2, 1, 0], device=device)
    try:
        write(x, index)
    except RuntimeError as error:
        return str(error).split(".")[0]
    return ""


@pytest.mark.parametrize("name", list(OVERLAPS))
def test_overlapping_writes_are_errors_as_on_the_cpu(name: str):
    on_cpu = refusal(OVERLAPS[name], "cpu")
    assert on_cpu.startswith("unsupported operation")
    assert refusal(OVERLAPS[name], "sdaa") == on_cpu


def test_tensors_of_one_storage_are_recognized():
    x = torch.arange(6.0, device="sdaa")
    assert torch.tensor([], device="sdaa").set_(x).is_set_to(x)
    assert not x.clone().is_set_to(x)


def test_device_indices_of_a_cpu_tensor_are_an_error():
    index = torch.tensor([0, 2], device="sdaa")
    with pytest.raises(RuntimeError, match=r"cpu and sdaa! .*indexed tensor"):
        torch.arange(3.0)[index]
    with pytest.raises(RuntimeError, match=r"indexed tensor .*cpu"):
        torch.arange(3.0)[index] = 1.0


def test_index_put_values_are_on_the_device_or_scalars():
    x = torch.zeros(3, device="sdaa")
    with pytest.raises(RuntimeError, match="values of an index_put"):
        x[torch.tensor([0, 2])] = torch.ones(2)
    x[torch.tensor([0, 2])] = torch.tensor(5.0)
    assert x.tolist() == [5.0, 0.0, 5.0]


def test_storage_of_another_device_cannot_be_set():
    with pytest.raises(RuntimeError, match=r'"sdaa:0" .*"sdaa:1"'):
        torch.zeros(2, device="sdaa:0").set_(torch.zeros(2, device="sdaa:1"))


def bits(t: torch.Tensor) -> list[int]:
    made: list[int] = t.contiguous().view(torch.uint8).flatten().tolist()
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool, torch.complex64])
@pytest.mark.usefixtures("deterministic")
def test_uninitialized_memory_is_filled_in_deterministic_mode(dtype: torch.dtype):
    def made(device: str) -> list[torch.Tensor]:
        options = {"device": device, "dtype": dtype}
        grown = torch.zeros(2, **options).resize_(5)
        return [
            torch.empty(3, **options),
            torch.empty_strided((2, 2), (1, 2), **options),
            torch.empty_like(grown),
            grown,
        ]

    for ours, theirs in zip(made("sdaa"), made("cpu"), strict=True):
        assert bits(ours.cpu()) == bits(theirs)


def test_lazy_clone_is_a_clone():
    x = torch.arange(8.0, device="sdaa:1", requires_grad=True)
    part = x[1:7:2]._lazy_clone()
    assert (part.device, part.stride(), part.tolist()) == (torch.device("sdaa:1"), (2,), [1.0, 3.0, 5.0])
    part.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    with torch.no_grad():
        part.add_(1)
    assert x.tolist() == list(range(8))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_whole_numbers_are_counted_as_on_cuda(dtype: torch.dtype):
    values = torch.tensor([0, 1, 1, 3, 3, 3, 9], dtype=dtype)
    made = torch.histc(values.sdaa(), bins=4, min=0, max=3)
    assert (made.dtype, made.device.type) == (dtype, "sdaa")
    assert made.tolist() == torch.histc(values.float(), bins=4, min=0, max=3).tolist()


def test_init_in_a_forked_process_is_an_error():
    torch.zeros(1, device="sdaa")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.sdaa.init()
            os.write(write, b"nothing was said")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as output:
        assert "Cannot use the SDAA device in a forked process" in output.read()
