"""Typed tensors and storages, ``.sdaa()`` and ``.is_sdaa``, DLPack, pinned memory, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

pytestmark = pytest.mark.torch

_DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.bool,
    torch.complex64,
]
_DEVICES = ["cpu", "sdaa:0", "sdaa:1", "sdaa:3"]


def test_a_type_has_its_name() -> None:
    x = torch.ones(2, device="sdaa:1")

    assert x.type() == "torch.sdaa.FloatTensor"
    assert x.type("torch.sdaa.HalfTensor").dtype == torch.float16
    assert x.type(torch.sdaa.LongTensor).type() == "torch.sdaa.LongTensor"
    assert x.type(torch.float64).type() == "torch.sdaa.DoubleTensor"
    assert x.type("torch.FloatTensor").device.type == "cpu"
    assert torch.ones(2).type(torch.sdaa.FloatTensor).is_sdaa


@pytest.mark.parametrize(
    "name", ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
)
def test_a_typed_tensor_is_made_as_those_of_the_cpu_are(name: str) -> None:
    kind, cpu = getattr(torch.sdaa, f"{name}Tensor"), getattr(torch, f"{name}Tensor")

    assert repr(kind) == f"<class 'torch.sdaa.{name}Tensor'>"
    assert kind(2, 3).shape == cpu(2, 3).shape
    assert kind(torch.Size([4])).dtype == cpu().dtype == kind.dtype
    assert torch.equal(kind([1, 0, 1]).cpu(), cpu([1, 0, 1]))
    assert isinstance(kind(1), kind)
    assert not isinstance(cpu(1), kind)
    assert not isinstance(kind(1), cpu)
    assert not isinstance(3, kind)


def test_a_typed_tensor_of_a_tensor_shares_it() -> None:
    x = torch.ones(2, device="sdaa:2")

    assert torch.sdaa.FloatTensor(x).data_ptr() == x.data_ptr()
    assert torch.sdaa.FloatTensor(2, device="sdaa:3").device == torch.device("sdaa:3")
    assert torch.sdaa.FloatTensor(np.ones(2, np.float32)).tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"use x.type\(torch.sdaa.FloatTensor\)"):
        torch.sdaa.FloatTensor(torch.ones(2))


def test_a_typed_tensor_can_be_the_default_type() -> None:
    try:
        torch.set_default_tensor_type("torch.sdaa.HalfTensor")
        assert torch.ones(2).type() == "torch.sdaa.HalfTensor"
        with pytest.raises(TypeError, match="only floating-point types"):
            torch.set_default_tensor_type(torch.sdaa.IntTensor)
        with pytest.warns(UserWarning, match="deprecated"):
            torch.set_default_tensor_type("torch.FloatTensor")
        assert torch.ones(2).type() == "torch.FloatTensor"
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages() -> None:
    storage = torch.ones(3).storage().sdaa(2)

    assert isinstance(storage, torch.sdaa.FloatStorage)
    assert not isinstance(storage, torch.FloatStorage)
    assert storage.type() == "torch.sdaa.FloatStorage"
    assert torch.sdaa.HalfStorage(4).device.type == "sdaa"
    assert storage.untyped().is_sdaa
    assert torch.ones(3).untyped_storage().sdaa(1).device == torch.device("sdaa:1")
    assert torch.UntypedStorage(12, device="sdaa:2").nbytes() == 12
    with pytest.raises(RuntimeError, match=r"FloatStorage .*\.sdaa\(\)"):
        torch.sdaa.FloatStorage.from_buffer(b"1234")


def test_all_tensor_containers_are_moved() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).sdaa(1)
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]).sdaa()

    assert {each.device for each in module.state_dict().values()} == {torch.device("sdaa:1")}
    assert packed.is_sdaa
    assert packed.data.is_sdaa
    assert packed.batch_sizes.device.type == "cpu"
    assert not torch.ones(1).is_sdaa
    assert torch.nn.Parameter(torch.ones(1, device="sdaa")).is_sdaa


@pytest.mark.parametrize("device", [1, "sdaa:1", torch.device("sdaa", 1)])
def test_the_target_device_of_a_tensor(device: object) -> None:
    assert torch.ones(2).sdaa(device, non_blocking=True).device == torch.device("sdaa:1")
    with torch.device("sdaa:1"):
        assert torch.ones(2).device == torch.device("sdaa:1")


def test_a_sparse_tensor_of_a_device_that_is_not_the_current_one() -> None:
    sparse = torch.eye(3, device="sdaa:2").to_sparse()

    assert (sparse.device, sparse.values().device) == (torch.device("sdaa:2"), torch.device("sdaa:2"))
    assert torch.equal(sparse.to_dense().cpu(), torch.eye(3))


def test_a_copy_is_another_tensor() -> None:
    x = torch.arange(6.0, device="sdaa:2").reshape(2, 3).t().requires_grad_()
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):  # noqa: S301 -- our own
        assert made.device == x.device
        assert made.stride() == x.stride()
        assert made.requires_grad
        assert torch.equal(made, x)
        assert made.data_ptr() != x.data_ptr()


def test_dlpack_shares_the_memory() -> None:
    x = torch.arange(6.0, device="sdaa:2")[::2]
    y = torch.from_dlpack(x)
    y += 1

    assert x.__dlpack_device__() == (12, 2)  # kDLExtDev
    assert (y.device, y.stride(), y.data_ptr()) == (x.device, x.stride(), x.data_ptr())
    assert x.tolist() == [1, 3, 5]
    before = torch.sdaa.memory_allocated(2)
    del x
    assert y.tolist() == [1, 3, 5]
    assert torch.sdaa.memory_allocated(2) == before
    del y
    assert torch.sdaa.memory_allocated(2) < before


def test_dlpack_between_devices_and_numpy() -> None:
    x = torch.arange(3.0, device="sdaa:1")

    assert torch.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]
    assert torch.from_dlpack(np.ones(2), device="sdaa:3").device == torch.device("sdaa:3")
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    assert np.from_dlpack(x.cpu()).tolist() == [0, 1, 2]
    assert torch.ones(1).__dlpack_device__()[0] == 1
    with pytest.raises(BufferError, match=r"use tensor\.detach"):
        torch.from_dlpack(x.requires_grad_())


def test_pinned_memory_and_copies_that_do_not_wait() -> None:
    x = torch.arange(5.0).pin_memory()

    assert x.is_pinned()
    assert torch.empty(2, pin_memory=True).is_pinned()
    assert not torch.ones(2).is_pinned()
    assert torch.equal(x.to("sdaa:1", non_blocking=True).to("cpu", non_blocking=True), x)
    assert next(iter(torch.utils.data.DataLoader([1, 2], pin_memory=True))).is_pinned()


@st.composite
def _views(draw: Any) -> tuple[list[int], list[tuple[str, int]]]:
    """Return sizes, and a function that makes a view of a tensor of these sizes."""
    sizes = draw(st.lists(st.integers(0, 4), max_size=4))
    steps = draw(
        st.lists(st.tuples(st.sampled_from(["t", "step", "expand", "flip", "select"]), st.integers(0, 3)), max_size=3)
    )
    return sizes, steps


def _viewed(x: Any, steps: list[tuple[str, int]]) -> Any:
    for step, at in steps:
        dim = at % x.dim() if x.dim() else 0
        if step == "t" and x.dim() > 1:
            x = x.transpose(0, dim)
        elif step == "step" and x.dim():
            x = x[(slice(None),) * dim + (slice(at % 2, None, 2),)]
        elif step == "expand":
            x = x.unsqueeze(dim).expand(*x.shape[:dim], 2, *x.shape[dim:])
        elif step == "flip" and x.dim():
            x = x.flip(dim)
        elif step == "select" and x.dim() and x.shape[dim]:
            x = x.select(dim, 0)
    return x


@given(
    view=_views(),
    dtypes=st.tuples(st.sampled_from(_DTYPES), st.sampled_from(_DTYPES)),
    devices=st.tuples(st.sampled_from(_DEVICES), st.sampled_from(_DEVICES)),
    non_blocking=st.booleans(),
)
@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_a_copy_is_the_cpus(view: Any, dtypes: Any, devices: Any, non_blocking: bool) -> None:
    sizes, steps = view
    host = torch.randint(-5, 5, sizes, generator=torch.Generator().manual_seed(len(steps))).to(dtypes[0])
    source, expected = _viewed(host.to(devices[0]), steps), _viewed(host, steps)
    kwargs = {"device": devices[1], "dtype": dtypes[1], "non_blocking": non_blocking, "copy": True}

    moved = source.to(**kwargs)
    written = torch.empty(expected.shape, dtype=dtypes[1], device=devices[1]).copy_(source, non_blocking=non_blocking)

    assert source.stride() == expected.stride()
    assert moved.device == written.device == torch.device(devices[1])
    assert moved.stride() == expected.to("cpu", dtypes[1], copy=True).stride()
    for made in (moved, written):
        assert torch.equal(made.cpu(), expected.to(dtypes[1]))


@given(view=_views(), device=st.sampled_from(_DEVICES[1:]))
@settings(max_examples=50)
def test_a_write_to_a_view_is_in_its_base(view: Any, device: str) -> None:
    sizes, steps = view
    steps = [step for step in steps if step[0] not in ("expand", "flip")]
    base, host = torch.zeros(sizes, device=device), torch.zeros(sizes)
    _viewed(base, steps).fill_(3).add_(1)
    _viewed(host, steps).fill_(3).add_(1)

    assert torch.equal(base.cpu(), host)
    assert _viewed(base, steps).untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
