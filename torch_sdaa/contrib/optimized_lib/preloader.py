"""Batches that are copied to the device while it computes on those before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from engine import ConfigError


class PreLoader:
    """``for batch in loader`` with the batch on the device: its copy was begun one batch ahead, on a stream of its own.

    ``next()`` returns ``None`` behind the last batch, as in loops written by hand; another ``for`` begins anew.

    Args:
        loader: gives batches: tensors, or tuples, lists and dicts of them. device: where they are wanted.
        mean, std: of the channels: the first tensor of a batch becomes ``(x.float() - mean) / std`` on the device, so
            that pictures travel as uint8.

    Raises:
        ConfigError: only one of ``mean`` and ``std`` is given, or the device is not ``sdaa``.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: str | torch.device = "sdaa",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        where = torch.device(device)
        if where.type != "sdaa":
            raise ConfigError(f"PreLoader copies to a device such as 'sdaa:0', not to {str(device)!r}")
        if (mean is None) != (std is None):
            raise ConfigError("PreLoader: mean and std belong together: give both or none")
        self._loader = loader
        index = where.index if where.index is not None else torch.sdaa.current_device()
        self.device = torch.device("sdaa", index)
        self._stream = torch.sdaa.Stream(self.device)
        self._numbers = None
        if mean is not None and std is not None:
            with torch.sdaa.stream(self._stream):
                self._numbers = [torch.tensor(each).view(1, -1, 1, 1).to(self.device) for each in (mean, std)]
        self._batches: Iterator[Any] | None = None
        self._ahead: Any = None

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        while (batch := self.next()) is not None:
            yield batch

    def next(self) -> Any:
        """Return the next batch, on the device; ``None`` behind the last."""
        if self._batches is None:
            self._begin()
        batch = self._ahead
        if batch is None:
            self._batches = None
            return None
        here = torch.sdaa.current_stream(self.device)
        here.wait_stream(self._stream)
        for tensor in pytree.tree_leaves(batch):
            if isinstance(tensor, Tensor):
                tensor.record_stream(here)
        self._copy_next()
        return batch

    def _begin(self) -> None:
        self._batches = iter(self._loader)
        self._copy_next()

    def _copy_next(self) -> None:
        batch = next(self._batches, None) if self._batches is not None else None
        if batch is None:
            self._ahead = None
            return
        with torch.sdaa.stream(self._stream):
            leaves, shape = pytree.tree_flatten(batch)
            moved = [x.to(self.device, non_blocking=True) if isinstance(x, Tensor) else x for x in leaves]
            if self._numbers is not None:
                first = next(k for k, x in enumerate(moved) if isinstance(x, Tensor))
                mean, std = self._numbers
                moved[first] = moved[first].float().sub_(mean).div_(std)
            self._ahead = pytree.tree_unflatten(moved, shape)
