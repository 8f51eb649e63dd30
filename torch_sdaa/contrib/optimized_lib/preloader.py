"""Batches that are copied to the device while it computes on those before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from engine import ConfigError, DataError


class _Failed(NamedTuple):
    """What stands for a batch that could not be had."""

    error: Exception


_END = object()
"""What stands behind the last batch."""


class PreLoader:
    """``for batch in loader`` with the batch on the device: its copy was begun one batch ahead, on a stream of its own.

    ``next()`` returns ``None`` behind the last batch, as in loops written by hand; another ``for`` begins anew. What
    the loader raises for a batch is raised where that batch would come, behind those before it.

    Args:
        loader: gives batches: tensors, or tuples, lists and dicts of them; what else has a ``to`` is moved by that.
        device: where they are wanted.
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
        self._ahead: Any = _END  # a batch, why there is none, or the end

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        mine = self._batches
        try:
            while (batch := self._take()) is not _END:
                yield batch
        finally:  # a loop that is left early leaves no workers and no batch behind
            if self._batches is mine:
                self._batches, self._ahead = None, _END

    def next(self) -> Any:
        """Return the next batch, on the device; ``None`` behind the last."""
        batch = self._take()
        return None if batch is _END else batch

    def _take(self) -> Any:
        if self._batches is None:
            self._begin()
        batch = self._ahead
        failed = isinstance(batch, _Failed)
        if batch is _END or failed:
            self._batches, self._ahead = None, _END
        if failed:
            raise batch.error
        if batch is _END:
            return batch
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
        if self._batches is None:
            return
        try:
            batch = next(self._batches, _END)
            self._ahead = batch if batch is _END else self._copied(batch)
        except Exception as error:  # noqa: BLE001 -- whatever the loader raises is raised where its batch is asked for
            self._ahead = _Failed(error)

    def _copied(self, batch: Any) -> Any:
        with torch.sdaa.stream(self._stream):
            leaves, shape = pytree.tree_flatten(batch)
            moved = [_moved(x, self.device) for x in leaves]
            if self._numbers is not None:
                first = next((k for k, x in enumerate(moved) if isinstance(x, Tensor)), None)
                if first is None:
                    raise DataError("PreLoader with mean and std: there is no tensor in a batch")
                moved[first] = _normalised(moved[first], *self._numbers)
            return pytree.tree_unflatten(moved, shape)


def _normalised(pictures: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    if pictures.dim() != 4 or mean.numel() not in (1, pictures.shape[1]):
        raise DataError(
            f"PreLoader with mean and std of {mean.numel()} channels takes pictures of as many, N x channels x H x W, "
            f"as the first tensor of a batch; not one of {tuple(pictures.shape)}"
        )
    return pictures.float().sub_(mean).div_(std)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    to = getattr(value, "to", None)
    return to(device) if callable(to) else value
