"""Device interface for ``torch.compile``, registered when its modules are imported."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from torch_sdaa import dynamo, sdaa
from torch_sdaa.loading import late_imports
from torch_sdaa.operators import one_dnn

NO_INDUCTOR = (
    "torch.compile's default backend, inductor, does not support sdaa: pass backend='sdaa', which compiles for the "
    "card, or call the function uncompiled; where a framework chooses the backend, run the script with "
    "python -m torch_sdaa.run"
)

instead_of_inductor: Callable[..., Any] | None = None
"""Backend for graphs on the device for which inductor was asked: set while CUDA's names are redirected."""


def register_when_imported() -> None:
    """Register the device in dynamo and inductor, now or as soon as they are imported."""
    late_imports.when_imported("torch._dynamo", register)
    late_imports.when_imported("torch._dynamo.backends.registry", register_backend)
    late_imports.when_imported("torch._inductor.codegen.common", refuse_code)
    late_imports.when_imported("torch._inductor.compile_fx", refuse_inductor)
    late_imports.when_imported("torch.nn.attention.flex_attention", allow_flex_attention)


def register() -> None:
    """Register the device's interface in dynamo, and the functions of ``torch.sdaa`` with constant results."""
    from torch._dynamo import device_interface

    one_dnn.leave_uncompiled()
    interface = _interface(device_interface.DeviceInterface)
    device_interface.register_interface_for_device("sdaa", interface)
    for index in range(sdaa.device_count()):
        device_interface.register_interface_for_device(f"sdaa:{index}", interface)
    constant: tuple[Any, ...] = (
        sdaa.device_count,
        sdaa.get_device_capability,
        sdaa.get_device_name,
        sdaa.get_device_properties,
    )
    for function in constant:
        torch.compiler.assume_constant_result(function)
    # In a graph, a change of the current device would be lost: AOTAutograd executes it while tracing.
    for kind in (sdaa.device, sdaa.device_of):
        kind.__enter__ = _outside_graphs(kind.__enter__)  # type: ignore[method-assign]
        kind.__exit__ = _outside_graphs(kind.__exit__)  # type: ignore[method-assign]
    sdaa.set_device = sdaa.devices.set_device = _outside_graphs(sdaa.set_device)


def register_backend() -> None:
    """Register the backend ``sdaa`` in dynamo."""
    from torch._dynamo.backends import registry

    registry.register_backend(dynamo.aot_backend, name="sdaa")


def refuse_inductor() -> None:
    """Let inductor raise a clear error for a graph with tensors of the device, before it generates code."""
    from torch._inductor import compile_fx

    compile_fx.compile_fx = _refusing(compile_fx.compile_fx)


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    from torch._dynamo.exc import ShortenTraceback

    class NoInductorError(ShortenTraceback):
        """Inductor does not support the device; dynamo passes this error on, and adds lines to other ones."""

        def __str__(self) -> str:
            return NO_INDUCTOR

    @functools.wraps(original)
    def compile_fx(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_on_device(model_, example_inputs_):
            if instead_of_inductor is not None:
                return instead_of_inductor(model_, example_inputs_)
            raise NoInductorError(NO_INDUCTOR, first_useful_frame=inspect.currentframe())
        return original(model_, example_inputs_, *args, **kwargs)

    return compile_fx


def _is_on_device(graph: Any, inputs: Any) -> bool:
    """Return whether a graph's inputs, or its values as dynamo traced them, are on the device."""
    nodes = graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ()
    traced = [node.meta.get("example_value") for node in nodes]
    return any(isinstance(each, torch.Tensor) and each.device.type == "sdaa" for each in (*inputs, *traced))


def refuse_code() -> None:
    """Let inductor's code generator raise the same error where a graph reaches it in another way."""
    from torch._inductor.codegen import common

    common.register_device_op_overrides("sdaa", common.DeviceOpOverrides())
    common.register_backend_for_device("sdaa", _NoCode, _NoCode)


class _NoCode:
    """Code generator of inductor that raises an error."""

    supports_caching = False

    def __init__(self, *args: Any) -> None:
        raise RuntimeError(NO_INDUCTOR)

    @classmethod
    def create(cls, *args: Any) -> Any:
        """Raise an error; inductor calls this first.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(NO_INDUCTOR)


def allow_flex_attention() -> None:
    """Let FlexAttention compute on the device, in PyTorch's unfused form; PyTorch has a list of device types."""
    from torch.nn.attention import flex_attention

    original = flex_attention._validate_device

    @functools.wraps(original)
    def validate(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "sdaa":
            original(query, key, value)

    flex_attention._validate_device = validate


def _outside_graphs(function: Any) -> Any:
    return torch.compiler.disable(function, reason="the current device changes between graphs only")


def _interface(base: Any) -> type:
    """Return dynamo's interface of the device, based on ``torch.sdaa``."""

    class Worker:
        """Functions for compile workers, which are processes with the same card description."""

        set_device = staticmethod(sdaa.set_device)
        current_device = staticmethod(sdaa.current_device)
        get_device_properties = staticmethod(sdaa.get_device_properties)

    class SdaaInterface(base):
        device = sdaa.device
        Event = sdaa.Event
        Stream = sdaa.Stream
        current_device = staticmethod(sdaa.current_device)
        set_device = staticmethod(sdaa.set_device)
        device_count = staticmethod(sdaa.device_count)
        is_available = staticmethod(sdaa.is_available)
        exchange_device = staticmethod(sdaa._exchange_device)
        maybe_exchange_device = staticmethod(sdaa._maybe_exchange_device)
        stream = staticmethod(sdaa.stream)
        current_stream = staticmethod(sdaa.current_stream)
        set_stream = staticmethod(sdaa.set_stream)
        synchronize = staticmethod(sdaa.synchronize)
        get_compute_capability = staticmethod(sdaa.get_device_capability)
        is_bf16_supported = staticmethod(sdaa.is_bf16_supported)
        memory_allocated = staticmethod(sdaa.memory_allocated)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(sdaa.current_stream(device_idx).stream_id)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            torch.accelerator.set_stream(
                torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
            )

    SdaaInterface.Worker = Worker
    return SdaaInterface
