"""Conversions of the historical interfaces: tensors of frameworks as inputs, and the timing of ``.module``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.text import one_line


def as_arrays(inputs: Any) -> Any:
    """Return tensors of torch or Paddle as arrays; other values are returned unchanged.

    A tensor is recognised by its methods, so no framework is imported. It may be on any device, be a view, and require
    gradients. bfloat16, which NumPy does not have, becomes float32.

    Args:
        inputs: a tensor, an array, or a list or tuple of either.
    """
    if isinstance(inputs, (list, tuple)):
        return [_as_array(one) for one in inputs]
    return _as_array(inputs)


def _as_array(value: Any) -> Any:
    if isinstance(value, np.ndarray) or not all(hasattr(value, name) for name in ("detach", "cpu", "numpy")):
        return value
    tensor = value.detach().cpu()
    if str(tensor.dtype).endswith("bfloat16"):
        tensor = tensor.float() if hasattr(tensor, "float") else tensor.astype("float32")
    return np.ascontiguousarray(tensor.numpy()) if tensor.ndim else np.asarray(tensor.numpy())


class Timing:
    """``.module`` of the historical interfaces: work time of each SPA (``seconds``), ``simulated`` or wall."""

    def __init__(self, seconds: Callable[[], Sequence[float]], simulated: bool) -> None:
        self._seconds, self.simulated = seconds, simulated
        self._begin = [0.0] * len(seconds())

    def start_timing(self) -> None:
        """Start timing; before the first call, times count from the opening of the engine."""
        self._begin = list(self._seconds())

    def get_infer_time(self) -> list[float]:
        """Return milliseconds of work since :meth:`start_timing`, one value per SPA.

        On the simulated card (``simulated`` is true) they are **simulated** device times, copies included; a script
        that divides the largest by its calls prints a simulated time. On every other target the list has one entry, the
        wall time of all calls.
        """
        return [(now - begun) * 1e3 for now, begun in zip(self._seconds(), self._begin, strict=True)]


def shapes_of(input_size: Sequence[Any] | None) -> tuple[tuple[int | None, ...], ...] | None:
    """Return shapes from a list or one bare shape, ``None`` for the model's size; raise ConfigError if invalid."""
    given = input_size.tolist() if isinstance(input_size, np.ndarray) else input_size
    if not given:
        return None
    try:
        if isinstance(given, str):
            raise TypeError
        shapes = [given] if given[0] is None or isinstance(given[0], Integral) else given
        return tuple(tuple(None if d is None else int(d) for d in shape) for shape in shapes)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"input_size {one_line(repr(input_size))} must be a list of shapes, one per input: [[1, 3, 224, 224]]"
        ) from error


def batch_of_call(batch_size: Any) -> int:
    """Return the batch size of a call; 1 for ``None`` or 0. Raise ConfigError if it is not a whole number."""
    if batch_size is None or isinstance(batch_size, Integral):
        return int(batch_size or 1)
    raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")


def names_of(input_name: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return a list of names from one name, a list of names, or nothing."""
    if not input_name:
        return ()
    return (input_name,) if isinstance(input_name, str) else tuple(input_name)


def card_of(card: Any) -> int:
    """Return a card's index; -1 (a single process) is the first card. Raise ConfigError if it is not a whole number."""
    text = str(card).rpartition(":")[2]
    if isinstance(card, bool) or not text.removeprefix("-").isdecimal():
        raise ConfigError(f"card {card!r} must be the index of a card, such as 0")
    return max(int(text), 0)
