"""Random operators on DTensors: every rank gets its part of the numbers that one device would draw.

PyTorch's DTensor moves the offset of CUDA's Philox generator to a rank's part. The generators of this device are the
CPU's, which have no offset. Here all ranks draw the numbers of the whole tensor from the same state, and each keeps its
part: a sharded model that is initialized on the device has the weights of the same model on one device, bit for bit,
and the generators of all ranks stay equal.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_sdaa import sdaa
from torch_sdaa.loading import late_imports

_RANDOM = "torch.distributed.tensor._random"


def offer() -> None:
    """Change DTensor's random operators for this device, now or when DTensor is imported."""
    late_imports.when_imported(_RANDOM, _change)


def _change() -> None:
    from torch.distributed.tensor import _random

    tracker = _random.OffsetBasedRNGTracker
    original = tracker._distribute_region

    @functools.wraps(original)
    def region(self: Any, spec: Any, generator: torch.Generator | None = None) -> Any:
        if self._device.type != "sdaa":
            return original(self, spec, generator)
        return _whole_draws(self.distribute_region_enabled, spec, generator)

    tracker._distribute_region = region


@contextmanager
def _whole_draws(enabled: bool, spec: Any, generator: torch.Generator | None) -> Iterator[None]:
    """Context in which random operators on local tensors draw the whole tensor's numbers.

    Args:
        enabled: whether ranks draw parts of one tensor; otherwise each draws its own numbers.
        spec: DTensor's description of the tensor: mesh, placements, shape.
        generator: the operator's; ``None``: that of the current device.
    """
    if not enabled:
        yield
        return
    own = sdaa.default_generators[sdaa.current_device()]
    if generator is not None:
        before = own.get_state()
        own.set_state(generator.get_state())
    try:
        if any(map(_splits, spec.placements)):
            with _OfTheWhole(spec, own):
                yield
        else:
            yield
    finally:
        if generator is not None:
            generator.set_state(own.get_state())
            own.set_state(before)


def _splits(placement: Any) -> bool:
    """Return whether a placement gives each rank a part, which PyTorch has two classes for."""
    return hasattr(placement, "_split_tensor")


class _OfTheWhole(TorchDispatchMode):
    """Runs random operators on the whole tensor, and returns or writes this rank's part of the result."""

    def __init__(self, spec: Any, drawn: torch.Generator) -> None:
        super().__init__()
        self.spec, self.drawn = spec, drawn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator; those that draw no numbers are unchanged."""
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        first, *rest = args
        if not isinstance(first, torch.Tensor):  # torch.rand(sizes, ...)
            return self._part(func(list(self.spec.shape), *rest, **kwargs)).clone(memory_format=torch.contiguous_format)
        if func._schema.is_mutable and "out" not in kwargs:
            return self._fill(func, first, rest, kwargs)
        whole = self._embedded(first)
        if (out := kwargs.pop("out", None)) is not None:
            result = func(whole, *rest, out=out.new_empty(self.spec.shape), **kwargs)
            return out.copy_(self._part(result))
        result = func(whole, *rest, **kwargs)
        if isinstance(result, torch.Tensor):
            return self._like(first, result)
        return type(result)(self._like(first, each) for each in result)

    def _fill(self, func: Any, local: torch.Tensor, rest: Any, kwargs: Any) -> torch.Tensor:
        """Fill a local tensor; the whole one is drawn in the host's memory, as the device holds only parts of it."""
        host = torch.Generator("cpu")
        host.set_state(self.drawn.get_state())
        whole = torch.empty(self.spec.shape, dtype=local.dtype, device="cpu")
        func(whole, *rest, **kwargs, generator=host)
        self.drawn.set_state(host.get_state())
        return local.copy_(self._part(whole))

    def _embedded(self, local: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the whole shape with a local tensor's values in its place, and zeros elsewhere."""
        whole = local.new_zeros(self.spec.shape)
        places = torch.arange(whole.numel(), device="cpu").view(self.spec.shape)
        whole.view(-1)[self._part(places).reshape(-1).to(local.device)] = local.reshape(-1)
        return whole

    def _like(self, local: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a result, with the strides of its local tensor."""
        return torch.empty_like(local, dtype=whole.dtype).copy_(self._part(whole))

    def _part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a tensor of the whole shape."""
        mesh = self.spec.mesh
        for dimension, placement in enumerate(self.spec.placements):
            if _splits(placement):
                parts, _ = placement._split_tensor(whole, mesh.size(dimension), with_padding=False, contiguous=False)
                whole = parts[mesh.get_local_rank(dimension)]
        return whole
