"""Random generators of the devices, one each.

``torch.manual_seed`` seeds all of them like the CPU's, and each starts at the state of the CPU's generator at its first
draw: a script that creates weights and data on the CPU and then trains on a device draws the same numbers as on the CPU
alone, unless it continues to draw on both. Generators seeded by functions of this module start at their own seed.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterable, Sequence
from typing import Any, overload

import torch

from torch_sdaa.loading.core import C
from torch_sdaa.sdaa.devices import Device, device_count, index_of, unseen

_NO_OFFSET = "its generator is the CPU's; use get_rng_state and set_rng_state"

_generators: list[torch.Generator] = []


def _all() -> list[torch.Generator]:
    if not _generators:
        _generators.extend(C.default_generator(i) for i in range(device_count()))
    return _generators


def forget() -> None:
    """Drop the cached generators: the visible devices have changed."""
    _generators.clear()


class _Generators(Sequence[torch.Generator]):
    """Sequence of the devices' generators, created on first use."""

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[torch.Generator]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | list[torch.Generator]:
        try:
            return _all()[index]
        except IndexError:
            raise IndexError(unseen(int(index))) from None  # type: ignore[arg-type] # a slice raises none

    def __len__(self) -> int:
        return device_count()


def let_be_pickled() -> None:
    """Let generators of the device be pickled and copied: PyTorch's implementation requires an offset."""
    copyreg.pickle(torch.Generator, _reduced)


def _reduced(generator: torch.Generator) -> tuple[Any, ...]:
    if generator.device.type != "sdaa":
        return generator.__reduce__()
    return _from_state, (str(generator.device), generator.get_state())


def _from_state(device: str, state: torch.Tensor) -> torch.Generator:
    generator = torch.Generator(device=device)
    generator.set_state(state)
    return generator


default_generators = _Generators()


def get_rng_state(device: Device = "sdaa") -> torch.Tensor:
    """Return the state of a device's generator: a CPU tensor of bytes."""
    return _all()[index_of(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all generators."""
    return [generator.get_state() for generator in _all()]


def set_rng_state(new_state: torch.Tensor, device: Device = "sdaa") -> None:
    """Set the state of a device's generator."""
    _all()[index_of(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all generators; raise ValueError if the number of states differs from that of devices."""
    new_states = list(new_states)
    if len(new_states) != device_count():
        raise ValueError(f"expected {device_count()} states, one for each device, got {len(new_states)}")
    for generator, state in zip(_all(), new_states, strict=True):
        generator.set_state(state)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; without a device do nothing, like ``torch.cuda.manual_seed``."""
    if device_count():
        _all()[index_of(None)].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all generators."""
    for generator in _all():
        generator.manual_seed(int(seed))
    if (
        sys._getframe(1).f_globals.get("__name__") == "torch.random"
    ):  # called by torch.manual_seed, which also seeds the CPU's
        C.follow_the_cpu()


def seed() -> None:
    """Seed the current device's generator with a random number."""
    _all()[index_of(None)].seed()


def seed_all() -> None:
    """Seed all generators with the same random number."""
    manual_seed_all(_all()[index_of(None)].seed())


def set_offset(offset: int, device: Device = "sdaa") -> None:
    """Raise an error: the generators draw like the CPU's, which have no offset.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"sdaa:{index_of(device)} does not support set_offset: {_NO_OFFSET}")


def get_offset(device: Device = "sdaa") -> int:
    """Raise an error: the generators draw like the CPU's, which have no offset.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"sdaa:{index_of(device)} does not support get_offset: {_NO_OFFSET}")


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return int(_all()[index_of(None)].initial_seed())
