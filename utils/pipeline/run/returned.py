"""What a task's functions return, looked at where it comes in: one line for who wrote the task, not a far traceback."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from typing import Any

import numpy as np

from engine import ConfigError
from utils.metrics.base import Metric
from utils.tasks.prepared import Prepared


def returned(value: object, kind: type, function: Callable[..., Any], task: str) -> Any:
    """Return what a function of a task returned, if it is of the kind that the contract asks for.

    Args:
        value: what it returned.
        kind: the class that it must be of.
        function: the function, for the message. task: name of its task.

    Raises:
        ConfigError: it is of another kind.
    """
    if isinstance(value, kind):
        return value
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    raise _wrong(_said(value), f"{article} {kind.__name__}", function, task)


def prepared(value: object, function: Callable[..., Any], task: str, samples: int) -> Prepared:
    """Return what ``prepare`` returned, if it has arrays by input, and a context for each of so many samples or none.

    Raises:
        ConfigError: it is no :class:`Prepared`, holds one array in place of a list with one for each input, or has
            another number of contexts.
    """
    found: Prepared = returned(value, Prepared, function, task)
    if found.contexts is not None and len(found.contexts) != samples:
        given = f"Prepared with {len(found.contexts)} contexts for {samples} samples"
        raise _wrong(given, "one for each, or None", function, task)
    arrays: object = found.arrays
    if not isinstance(arrays, np.ndarray):
        return found
    what = f"Prepared with an array of shape {arrays.shape}"
    raise _wrong(what, "Prepared([array]), a list with one array for each input of the model", function, task)


def predictions(value: Any, function: Callable[..., Any], task: str) -> Any:
    """Return what ``decode`` returned, if it is a sequence.

    Raises:
        ConfigError: it cannot have one prediction for each sample.
    """
    if isinstance(value, Sized):
        return value
    raise _wrong(_said(value), "a list or an array with one prediction for each sample", function, task)


def measure(value: object, function: Callable[..., Any], task: str) -> Metric:
    """Return the metric that a task gave, if it has a name.

    Raises:
        ConfigError: it is no :class:`Metric`, or has none.
    """
    found: Metric = returned(value, Metric, function, task)
    if isinstance(getattr(found, "name", None), str):
        return found
    kind = type(found).__name__
    raise ConfigError(
        f"task {task}: metric {kind} has no name; add a line such as name = {kind.lower()!r} to its class"
    )


def _wrong(what: str, wanted: str, function: Callable[..., Any], task: str) -> ConfigError:
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    where = getattr(inner, "__module__", "its module")
    return ConfigError(f"task {task}: {name} of {where} returned {what}; let it return {wanted} (docs/tasks.md)")


def _said(value: object) -> str:
    """Say what was returned, in a few words."""
    if value is None:
        return "nothing"
    return (
        f"the class {value.__name__} itself" if isinstance(value, type) else f"a value of type {type(value).__name__}"
    )
