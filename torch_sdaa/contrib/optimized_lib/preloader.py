"""Batches that are copied to the device during its computation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from engine import ConfigError, DataError


class _Failed(NamedTuple):
    """Stands for a batch that the loader failed to return."""

    error: Exception


_END = object()
"""Stands after the last batch."""


class PreLoader:
    """Iterates over a loader with batches on the device; each is copied one batch ahead, on a separate stream.

    ``next()`` returns ``None`` after the last batch, for handwritten loops; another ``for`` starts again. An error of
    the loader is raised in place of its batch, after the earlier batches.

    Args:
        loader: yields batches: tensors, or tuples, lists and dicts of them; other objects with ``to`` are moved by it.
        device: target of the copies.
        mean, std: of the channels: the first tensor of a batch becomes ``(x.float() - mean) / std`` on the device, so
            that images are copied as uint8.

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
            raise ConfigError("PreLoader: give both mean and std, or neither")
        self._loader = loader
        index = where.index if where.index is not None else torch.sdaa.current_device()
        self.device = torch.device("sdaa", index)
        self._stream = torch.sdaa.Stream(self.device)
        self._numbers = None
        if mean is not None and std is not None:
            with torch.sdaa.stream(self._stream):
                self._numbers = [torch.tensor(each).view(1, -1, 1, 1).to(self.device) for each in (mean, std)]
        self._batches: Iterator[Any] | None = None
        self._ahead: Any = _END  # a batch, a failure, or the end

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        self._begin()
        mine = self._batches
        try:
            while (batch := self._take()) is not _END:
                yield batch
        finally:  # after an early exit, release workers and the batch
            if self._batches is mine:
                self._batches, self._ahead = None, _END

    def next(self) -> Any:
        """Return the next batch, on the device; ``None`` after the last."""
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
        except Exception as error:  # noqa: BLE001 -- raised when the batch is requested
            self._ahead = _Failed(error)

    def _copied(self, batch: Any) -> Any:
        with torch.sdaa.stream(self._stream):
            leaves, shape = pytree.tree_flatten(batch)
            moved = [_moved(x, self.device) for x in leaves]
            if self._numbers is not None:
                first = next((k for k, x in enumerate(moved) if isinstance(x, Tensor)), None)
                if first is None:
                    raise DataError("PreLoader with mean and std: a batch has no tensor")
                moved[first] = _normalised(moved[first], *self._numbers)
            return pytree.tree_unflatten(moved, shape)


def _normalised(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    if images.dim() != 4 or mean.numel() not in (1, images.shape[1]):
        raise DataError(
            f"PreLoader with mean and std of {mean.numel()} channels: the first tensor of a batch must be images of as "
            f"many channels, N x channels x H x W, not {tuple(images.shape)}"
        )
    return images.float().sub_(mean).div_(std)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    to = getattr(value, "to", None)
    return to(device) if callable(to) else value
