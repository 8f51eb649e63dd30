"""The current device, device properties, and functions of a device module that PyTorch calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import torch

from engine.sdaa import load_card
from torch_sdaa.loading.core import C
from torch_sdaa.reports import publish

Device: TypeAlias = "int | str | torch.device | None"
"""Index of a device, ``"sdaa"``, ``"sdaa:1"``, ``torch.device``; ``None``: the current one."""

_initialized = False


def index_of(device: Device, none: int | None = None) -> int:
    """Return the index of a device; the current one's if it has none.

    Args:
        device: see :data:`Device`.
        none: result for ``None`` and negative numbers; default: the current device.

    Raises:
        ValueError: the device has another type. TypeError: the argument is not a device.
        RuntimeError: this process does not see it.
    """
    if device is None and none is not None:
        return none
    if device is None:
        index = current_device()
    elif isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        raise TypeError(f"a device must be its index, 'sdaa:0' or torch.device('sdaa', 0), got {device!r}")
    elif isinstance(device, int):
        index = device
    else:
        found = torch.device(device)
        if found.type != "sdaa":
            raise ValueError(f"expected a device of type sdaa ('sdaa', 'sdaa:0', its index), got {str(found)!r}")
        index = current_device() if found.index is None else found.index
    if index >= device_count():
        raise RuntimeError(unseen(index))
    return index if index >= 0 else index_of(None, none)


def unseen(index: int) -> str:
    """Return the message for a device that this process does not see."""
    count = device_count()
    seen = {0: "no device", 1: "1 device (sdaa:0)"}.get(count, f"{count} devices (sdaa:0 to sdaa:{count - 1})")
    return f"Invalid SDAA device index {index}: this process sees {seen}; see SDAA_VISIBLE_DEVICES"


def is_available() -> bool:
    """Return whether this process sees a device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return whether this process has used or selected a device: ``init_device_mesh`` selects one only before that."""
    return _initialized


def init() -> None:
    """Check that this process can use the device; see :func:`is_initialized`.

    Raises:
        RuntimeError: the process was forked from one that has used the device.
    """
    global _initialized
    C.check_process()
    _initialized = True


def device_count() -> int:
    """Return the number of devices that this process sees."""
    return int(C.device_count())


def current_device() -> int:
    """Return the index of the thread's current device."""
    return int(torch.accelerator.current_device_index())


def set_device(device: Device) -> None:
    """Set the thread's current device; a negative number changes nothing.

    Raises:
        ValueError: the argument is ``None``, or a device of another type.
        RuntimeError: this process does not see it.
    """
    if device is None:
        raise ValueError("set_device needs a device: its index, 'sdaa:0' or torch.device('sdaa', 0), not None")
    global _initialized
    index = index_of(device, none=-1)
    if index >= 0:
        torch.accelerator.set_device_index(index)
        _initialized = True


def synchronize(device: Device = None) -> None:
    """Wait, in simulated time, until a device has completed all launches."""
    torch.accelerator.synchronize(torch.device("sdaa", index_of(device)))
    if not torch.compiler.is_compiling():
        C.settle()


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return ``False``: copies between devices use the host's link."""
    index_of(device)
    index_of(peer_device)
    return False


class device:  # noqa: N801 -- like torch.cuda.device
    """Context with a current device; ``None`` and negative numbers change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = index_of(device, none=-1)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = C.exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        C.exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 -- like torch.cuda.device_of
    """Context with the device of a tensor or storage as the current one; others change nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "sdaa" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device.

    Attributes:
        name: of the card. major, minor: hardware generation. total_memory: bytes. multi_processor_count: compute
            arrays.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return the properties of a device."""
    major, minor = get_device_capability(device)
    return DeviceProperties(get_device_name(device), major, minor, int(C.memory_limit()), 1)


def get_device_name(device: Device = None) -> str:
    """Return the card's name."""
    index_of(device)
    return load_card().name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return the hardware generation."""
    index_of(device)
    return 1, 0


def is_tf32_supported() -> bool:
    """Return ``False``: float32 is computed in float32."""
    return False


def ipc_collect() -> None:
    """Do nothing: processes do not share device memory."""


def _lazy_init() -> None:
    """Start publishing to ``teco-smi``: PyTorch calls this before the first tensor on the device."""
    global _initialized
    _initialized = True
    publish.start()


def _lazy_call(callable: Callable[[], object], **_: Any) -> None:
    """Call a function, which CUDA would do when it is initialized: this device always is."""
    callable()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had used a device."""
    return bool(C.in_bad_fork())


def _exchange_device(index: int) -> int:
    """Set the thread's current device unless the index is negative; return the previous one."""
    return int(C.exchange_device(index))


_maybe_exchange_device = _exchange_device


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes of autocast."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return ``True``: the device computes bfloat16."""
    return True
