"""Random numbers of the devices: each has a generator of its own.

``torch.manual_seed`` seeds all of them with the CPU's, and each then begins where the CPU's generator is when it is
first drawn from; so a script that makes its weights and data on the CPU and then trains on a device draws what it would
draw on the CPU alone, as long as it does not go on drawing on both. What is seeded by itself, by the functions of this
module, begins at its seed.
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
    """Ask for the generators again: this process sees other devices now."""
    _generators.clear()


class _Generators(Sequence[torch.Generator]):
    """The devices' generators, as a tuple would hold them; made when they are first asked for."""

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
    """Let generators of the device be pickled and copied: PyTorch's own way asks for an offset, which they have not."""
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
    """Return the state of a device's generator: bytes, on the CPU."""
    return _all()[index_of(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all generators."""
    return [generator.get_state() for generator in _all()]


def set_rng_state(new_state: torch.Tensor, device: Device = "sdaa") -> None:
    """Set the state of a device's generator."""
    _all()[index_of(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all generators.

    Raises:
        ValueError: there are not as many states as devices.
    """
    new_states = list(new_states)
    if len(new_states) != device_count():
        raise ValueError(f"{device_count()} states are needed, one for each device, not {len(new_states)}")
    for generator, state in zip(_all(), new_states, strict=True):
        generator.set_state(state)


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; where there is no device, do nothing, as ``torch.cuda.manual_seed``."""
    if device_count():
        _all()[index_of(None)].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all generators."""
    for generator in _all():
        generator.manual_seed(int(seed))
    if sys._getframe(1).f_globals.get("__name__") == "torch.random":  # of torch.manual_seed, which seeds the CPU's too
        C.follow_the_cpu()


def seed() -> None:
    """Seed the current device's generator with a number nobody chose."""
    _all()[index_of(None)].seed()


def seed_all() -> None:
    """Seed all generators with one number nobody chose."""
    manual_seed_all(_all()[index_of(None)].seed())


def set_offset(offset: int, device: Device = "sdaa") -> None:
    """Refuse: the generators draw what the CPU's draw, which have no offset.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"sdaa:{index_of(device)} does not support set_offset: {_NO_OFFSET}")


def get_offset(device: Device = "sdaa") -> int:
    """Refuse: the generators draw what the CPU's draw, which have no offset.

    Raises:
        RuntimeError: always.
    """
    raise RuntimeError(f"sdaa:{index_of(device)} does not support get_offset: {_NO_OFFSET}")


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return int(_all()[index_of(None)].initial_seed())
