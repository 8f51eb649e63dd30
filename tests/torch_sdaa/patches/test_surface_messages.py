"""Common mistakes on a device: one line, with the fix."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from torch_sdaa.loading.core import C  # noqa: E402
from torch_sdaa.utils import strip_module_prefix  # noqa: E402

pytestmark = pytest.mark.torch

NO_NINE = r"^Invalid SDAA device index 9: this process sees 4 devices \(sdaa:0 to sdaa:3\); see SDAA_VISIBLE_DEVICES$"


def _said(call: Callable[[], Any], kind: type[BaseException]) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(1, device="sdaa:9"),
        lambda: torch.ones(1).to("sdaa:9"),
        lambda: torch.ones(1).sdaa(9),
        lambda: nn.Linear(1, 1).sdaa(9),
        lambda: torch.Generator(device="sdaa:9"),
        lambda: torch.sdaa.set_device(9),
        lambda: torch.sdaa.set_device("sdaa:9"),
        lambda: torch.sdaa.device(9).__enter__(),
        lambda: torch.sdaa.synchronize(9),
        lambda: torch.sdaa.Stream(9),
        lambda: torch.sdaa.current_stream(9),
        lambda: torch.sdaa.default_stream(9),
        lambda: torch.sdaa.memory_allocated(9),
        lambda: torch.sdaa.mem_get_info(9),
        lambda: torch.sdaa.memory_summary(9),
        lambda: torch.sdaa.reset_peak_memory_stats(9),
        lambda: torch.sdaa.get_rng_state("sdaa:9"),
        lambda: torch.sdaa.get_device_name(9),
        lambda: torch.sdaa.get_device_properties(9),
        lambda: torch.sdaa.FloatTensor(1, device=9),
        lambda: torch.accelerator.set_device_index(9),
        lambda: torch.accelerator.current_stream("sdaa:9"),
        lambda: torch.accelerator.memory_allocated(9),
        lambda: torch.accelerator.get_memory_info(9),
        lambda: torch.accelerator.synchronize(9),
    ],
)
def test_an_invalid_index_is_an_error(call: Callable[[], Any]) -> None:
    before = torch.sdaa.current_device()
    with pytest.raises(RuntimeError, match=NO_NINE):
        call()

    assert torch.sdaa.current_device() == before


def test_setting_none_is_an_error() -> None:
    assert "torch.device('sdaa', 0), not None" in _said(lambda: torch.sdaa.set_device(None), ValueError)


def test_a_device_of_another_type_is_an_error() -> None:
    assert _said(lambda: torch.sdaa.set_device("cpu"), ValueError) == (
        "expected a device of type sdaa ('sdaa', 'sdaa:0', its index), got 'cpu'"
    )


@pytest.mark.parametrize("device", [1.0, True, b"sdaa", [0]])
@pytest.mark.parametrize("call", [torch.sdaa.set_device, torch.sdaa.memory_allocated, torch.sdaa.Stream])
def test_other_objects_as_devices_are_errors(call: Callable[[Any], Any], device: Any) -> None:
    assert _said(lambda: call(device), TypeError) == (
        f"a device must be its index, 'sdaa:0' or torch.device('sdaa', 0), got {device!r}"
    )


@pytest.mark.parametrize("module", [nn.DataParallel, torch.nn.parallel.DataParallel])
@pytest.mark.parametrize("ids", [None, [0, 1], [torch.device("sdaa:0"), torch.device("sdaa:1")]])
def test_data_parallel_over_several_devices_is_an_error_with_the_ways_out(module: Any, ids: Any) -> None:
    message = _said(lambda: module(nn.Linear(2, 2).sdaa(), device_ids=ids), RuntimeError)

    for way in ("SDAA_VISIBLE_DEVICES=0", "device_ids=[0]", "DistributedDataParallel"):
        assert way in message
    assert f"--nproc_per_node={4 if ids is None else 2} " in message


def test_the_function_is_an_error_like_the_module() -> None:
    x = torch.ones(2, 2, device="sdaa")

    assert "DistributedDataParallel" in _said(
        lambda: torch.nn.parallel.data_parallel(nn.Linear(2, 2).sdaa(), x, [0, 1]), RuntimeError
    )


@pytest.mark.parametrize("ids", [[1], ["sdaa:1"], (torch.device("sdaa", 1),)])
def test_data_parallel_over_one_device_trains_like_its_module(ids: Any) -> None:
    torch.manual_seed(0)
    alone = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.0), nn.Linear(4, 2))
    wrapped = nn.DataParallel(copy.deepcopy(alone), device_ids=ids)
    x = torch.randn(5, 3)
    alone(x).square().sum().backward()
    result = wrapped(x)  # moved to the device
    result.square().sum().backward()

    assert wrapped.module[0].weight.device == result.device == torch.device("sdaa:1")
    assert list(wrapped.state_dict()) == [f"module.{name}" for name in alone.state_dict()]
    for mine, own in zip(wrapped.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine.grad.cpu(), own.grad)
    again = nn.parallel.data_parallel(wrapped.module, (x,), ids, output_device=2)
    assert again.device == torch.device("sdaa:2")
    assert torch.equal(again.cpu(), result.detach().cpu())


def test_data_parallel_moves_named_and_nested_inputs() -> None:
    class Both(nn.Module):
        def forward(self, pair: dict[str, Any], *, scale: Any) -> Any:
            return {"sum": (pair["a"] + pair["b"][0]) * scale}

    wrapped = nn.DataParallel(Both(), device_ids=[0])
    found = wrapped({"a": torch.ones(2), "b": [torch.ones(2)]}, scale=torch.tensor(3.0))
    assert found["sum"].device == torch.device("sdaa:0")
    assert found["sum"].tolist() == [6, 6]


def test_out_of_memory_is_an_error() -> None:
    message = _said(lambda: torch.empty(5 << 30, device="sdaa:1"), torch.OutOfMemoryError)

    assert "Tried to allocate 20480 MiB on sdaa:1, which has 15296 MiB, of which " in message
    assert "(simulated). Use a smaller batch" in message
    assert torch.ones(1, device="sdaa:1").item() == 1


def test_an_operator_without_a_kernel() -> None:
    message = _said(lambda: torch.ops.aten._cslt_compress(torch.ones(2, device="sdaa")), NotImplementedError)

    assert message.startswith("Could not run 'aten::_cslt_compress' with arguments from the 'SDAA' backend: ")
    assert message.endswith("torch.library.impl('aten::_cslt_compress', 'sdaa', your_function)")


def test_a_denied_operator_is_an_error() -> None:
    x = torch.ones(2, 2, device="sdaa")
    C.deny({"aten::mm"})
    try:
        assert "'aten::mm'" in _said(lambda: x @ x, NotImplementedError)
    finally:
        C.deny(set())
    assert (x @ x).sum().item() == 8


@pytest.mark.parametrize(
    ("other", "places"), [("cpu", "sdaa:0 and cpu"), ("sdaa:1", "sdaa:0 and sdaa:1")], ids=["host", "device"]
)
def test_tensors_of_two_devices(other: str, places: str) -> None:
    x, y = torch.ones(2, device="sdaa:0"), torch.ones(2, device=other)

    assert _said(lambda: x + y, RuntimeError) == (
        f"Expected all tensors to be on the same device, but found at least two devices, {places}! "
        "(aten::add.Tensor; move one with .to())"
    )


@pytest.mark.parametrize("call", [lambda x: x.numpy(), np.asarray, lambda x: x.__array__()])
def test_an_array_of_a_tensor_of_the_device(call: Callable[[Any], Any]) -> None:
    assert "Use Tensor.cpu()" in _said(lambda: call(torch.ones(2, device="sdaa")), TypeError)


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA")
@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.current_stream().synchronize(),
        lambda: torch.cuda.synchronize(),
        lambda: torch.cuda.set_device(0),
        lambda: torch.cuda.Stream(),
        lambda: torch.cuda.Event(enable_timing=True),
        lambda: torch.ones(1).cuda(),
        lambda: torch.ones(1, device="cuda"),
        lambda: nn.Linear(1, 1).cuda(),
    ],
)
def test_cudas_names(call: Callable[[], Any]) -> None:
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        call()

    message = str(caught.value)
    assert message.endswith(".sdaa() instead of .cuda(), and 'sdaa' instead of 'cuda'")
    assert "torch.sdaa.current_stream().synchronize()" in message
    assert "\n" not in message


def test_cuda_stays_unavailable() -> None:
    assert not torch.cuda.is_available() or torch.backends.cuda.is_built()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.share_memory_(),
        lambda x: nn.ParameterList([x]).share_memory(),
        lambda x: x.untyped_storage().share_memory_(),
        lambda x: torch.multiprocessing.reductions.reduce_storage(x.untyped_storage()),
    ],
)
def test_memory_of_a_device_is_not_shared(call: Callable[[Any], Any]) -> None:
    message = _said(lambda: call(torch.ones(2, device="sdaa:1")), RuntimeError)
    assert message.startswith("The memory of sdaa:1 belongs to this process: ")
    assert ".cpu()" in message
    assert torch.ones(2).share_memory_().is_shared()


def test_a_checkpoint_of_a_wrapped_model() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    wrapped = OrderedDict((f"module.{name}", value) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError) as caught:
        model.sdaa().load_state_dict(wrapped)

    last = str(caught.value).splitlines()[-1]
    assert "load torch_sdaa.utils.strip_module_prefix(state_dict)" in last
    assert model.load_state_dict(strip_module_prefix(wrapped))


@pytest.mark.parametrize(
    ("prefix", "more"), [("", ""), ("module.", "strip_module_prefix"), ("module.module.", "strip")]
)
def test_nested_weights_of_a_checkpoint(prefix: str, more: str) -> None:
    model = nn.Linear(2, 2)
    weights = {prefix + name: value for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict({"epoch": 3, "state_dict": weights, "optimizer": {"state": {}}})

    last = str(caught.value).splitlines()[-1].strip()
    assert last.startswith("the weights are nested under 'state_dict': load checkpoint['state_dict']")
    assert more in last


def test_a_plain_checkpoint_for_a_wrapped_model() -> None:
    inner = nn.Linear(2, 2)
    wrapper = nn.Module()
    wrapper.module = inner
    with pytest.raises(RuntimeError, match=r"load it into model.module$"):
        wrapper.load_state_dict(inner.state_dict())


@pytest.mark.parametrize("state", [{"other": torch.ones(1)}, {"weight": torch.ones(3, 3), "bias": torch.ones(2)}])
def test_other_checkpoint_errors_are_unchanged(state: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="loading state_dict") as caught:
        nn.Linear(2, 2).load_state_dict(state)

    assert "strip_module_prefix" not in str(caught.value)


def test_the_prefix_is_stripped_from_names_only() -> None:
    value = torch.ones(1)

    assert strip_module_prefix({"module.a": value, "b.module.c": value}) == {"a": value, "b.module.c": value}
    assert strip_module_prefix({"module.a": value})["a"] is value


@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        ([1], TypeError, "a dict from names to tensors, got list"),
        ({1: 2}, TypeError, "see model.state_dict()"),
        ({"state_dict": {}, "epoch": 1}, ValueError, "pass checkpoint['state_dict']"),
        ({"module.a": 1, "a": 2}, ValueError, "both 'module.a' and 'a': remove one of them"),
    ],
)
def test_an_invalid_state_dict_is_an_error(state: Any, kind: type[Exception], message: str) -> None:
    assert message in _said(lambda: strip_module_prefix(state), kind)


def test_too_few_states_of_generators() -> None:
    assert _said(lambda: torch.sdaa.set_rng_state_all([]), ValueError) == (
        "expected 4 states, one for each device, got 0"
    )
