"""Which device is the current one, and what it is."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import torch

from engine.sdaa import load_card
from torch_sdaa.core import C

Device: TypeAlias = "int | str | torch.device | None"
"""A device's number, ``"sdaa"``, ``"sdaa:1"``, ``torch.device``; ``None``: the current one."""


def index_of(device: Device, none: int | None = None) -> int:
    """Return a device's number; the current one's where it has none.

    Raises:
        ValueError: it is a device of another kind.
    """
    if device is None:
        return current_device() if none is None else none
    if isinstance(device, int):
        return device
    found = torch.device(device)
    if found.type != "sdaa":
        raise ValueError(f"expected a device of type sdaa, not {found}")
    return current_device() if found.index is None else found.index


def is_available() -> bool:
    """Return whether this process sees a device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Return ``True``: importing ``torch_sdaa`` is all there is to do."""
    return True


def init() -> None:
    """Do nothing: see :func:`is_initialized`."""


def device_count() -> int:
    """Return how many devices this process sees."""
    return int(C.device_count())


def current_device() -> int:
    """Return the number of the thread's device."""
    return int(C.current_device())


def set_device(device: Device) -> None:
    """Make a device the thread's."""
    C.set_device(index_of(device))


def synchronize(device: Device = None) -> None:
    """Wait, in simulated time, until a device has done all that was launched."""
    C.synchronize(index_of(device))
    C.settle()


class device:  # noqa: N801 -- as torch.cuda.device
    """A context in which a device is the thread's; ``None`` and negative numbers change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = index_of(device, none=-1)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = C.exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        C.exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 -- as torch.cuda.device_of
    """A context in which the device of a tensor or storage is the thread's; one elsewhere changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "sdaa" else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is.

    Attributes:
        name: of the card. major, minor: of its generation. total_memory: bytes. multi_processor_count: compute arrays.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return what a device is."""
    major, minor = get_device_capability(device)
    return DeviceProperties(get_device_name(device), major, minor, int(C.memory_limit()), 1)


def get_device_name(device: Device = None) -> str:
    """Return the card's name."""
    _checked(device)
    return load_card().name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return the generation of the hardware."""
    _checked(device)
    return 1, 0


def _checked(device: Device) -> int:
    index = index_of(device)
    if not 0 <= index < device_count():
        raise ValueError(f"there is no device sdaa:{index}: this process sees {device_count()}; see SDAA_VISIBLE_DEVICES")
    return index
