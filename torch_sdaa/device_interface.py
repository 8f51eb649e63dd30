"""What ``torch.compile`` has to know of the device. It is imported by those who use it, so it is told then."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

import torch

from torch_sdaa import sdaa

_DYNAMO, _INDUCTOR = "torch._dynamo", "torch._inductor.codegen.common"

NO_INDUCTOR = (
    "torch.compile's own backend, inductor, writes no code for sdaa: pass backend='aot_eager' (or 'eager'), or call "
    "the function as it is"
)


def register_when_imported() -> None:
    """Describe the device to dynamo and to inductor: now where they are imported, else as soon as they are."""
    for name, action in ((_DYNAMO, register), (_INDUCTOR, refuse_inductor)):
        if name in sys.modules:
            action()
        else:
            sys.meta_path.insert(0, _AfterImport(name, action))


class _AfterImport(MetaPathFinder):
    """Finds a module as everybody else would, with a loader that does something after it."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec; ``None`` for every other one."""
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(self, spec.loader)
        return spec


class _Registering(Loader):
    """Loads a module as its own loader would, does what is to be done, and takes the finder away."""

    def __init__(self, finder: _AfterImport, own: Loader) -> None:
        self._finder, self._own = finder, own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return what its own loader makes."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then what was waiting for it."""
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        self._finder.action()


def register() -> None:
    """Give dynamo the device's interface, and say which of ``torch.sdaa``'s functions never change their answer."""
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
    # Traced into a graph, a change of the current device is lost by AOTAutograd, which runs it while it traces.
    for kind in (sdaa.device, sdaa.device_of):
        kind.__enter__ = _outside_graphs(kind.__enter__)  # type: ignore[method-assign]
        kind.__exit__ = _outside_graphs(kind.__exit__)  # type: ignore[method-assign]
    sdaa.set_device = sdaa.devices.set_device = _outside_graphs(sdaa.set_device)


def refuse_inductor() -> None:
    """Let inductor say in a line that it has no code for the device; without this it ends with a ``KeyError``."""
    from torch._inductor.codegen import common

    common.register_device_op_overrides("sdaa", common.DeviceOpOverrides())
    common.register_backend_for_device("sdaa", _NoCode, _NoCode)


class _NoCode:
    """What inductor asks for code."""

    supports_caching = False

    @classmethod
    def create(cls, *args: Any) -> Any:
        """Refuse: inductor begins with this.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(NO_INDUCTOR)


def _outside_graphs(function: Any) -> Any:
    return torch.compiler.disable(function, reason="the current device changes between graphs only")


def _interface(base: Any) -> type:
    """Return the device's description: ``torch.sdaa`` in dynamo's words."""

    class Worker:
        """What a compile worker may ask; it is another process, which reads the same card description."""

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
