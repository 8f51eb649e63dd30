"""Device interface for ``torch.compile``, registered when its modules are imported."""

from __future__ import annotations

from typing import Any

import torch

from torch_sdaa import dynamo, sdaa
from torch_sdaa.loading import late_imports

NO_INDUCTOR = (
    "torch.compile's default backend, inductor, does not support sdaa: pass backend='sdaa', which compiles for the "
    "card, or call the function uncompiled"
)


def register_when_imported() -> None:
    """Register the device in dynamo and inductor, now or as soon as they are imported."""
    late_imports.when_imported("torch._dynamo", register)
    late_imports.when_imported("torch._dynamo.backends.registry", register_backend)
    late_imports.when_imported("torch._inductor.codegen.common", refuse_inductor)


def register() -> None:
    """Register the device's interface in dynamo, and the functions of ``torch.sdaa`` with constant results."""
    from torch._dynamo import device_interface

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
    """Let inductor raise a clear error for the device instead of a ``KeyError``."""
    from torch._inductor.codegen import common

    common.register_device_op_overrides("sdaa", common.DeviceOpOverrides())
    common.register_backend_for_device("sdaa", _NoCode, _NoCode)


class _NoCode:
    """Code generator of inductor that raises an error."""

    supports_caching = False

    @classmethod
    def create(cls, *args: Any) -> Any:
        """Raise an error; inductor calls this first.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(NO_INDUCTOR)


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
