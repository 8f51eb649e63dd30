"""The arguments that a metric was made with, as JSON has them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import ConfigError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def plain_arguments(cls: type[object], args: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments a metric of a class was made with, by their names; defaults that JSON lacks are left out.

    Args:
        cls: the metric's class.
        args, given: the arguments, by place and by name.

    Raises:
        ConfigError: an argument has no name, or is no plain JSON value.
    """
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *args, **given)
    except TypeError as error:  # its own __new__ passed other arguments on
        raise ConfigError(f"metric {cls.__qualname__}: {error}; give it no __new__ of its own") from error
    taken = list(bound.arguments)[1:]
    bound.apply_defaults()
    options: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            options |= {key: _plain(item, key, cls) for key, item in value.items()}
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY) and name in taken:
            raise ConfigError(f"metric {cls.__qualname__}: {name} is taken by place alone; give it a name")
        elif name in taken or (kind in _NAMED and _is_plain(value)):
            options[name] = _plain(value, name, cls)
    return options


def _is_plain(value: Any) -> bool:
    try:
        _plain(value, "", object)
    except ConfigError:
        return False
    return True


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def _plain(value: Any, name: str, cls: type) -> Any:
    """Return a value as JSON has it; tuples become lists, numbers of numpy plain ones."""
    if isinstance(value, np.generic):
        value = value.item()
    if _is_scalar(value):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, name, cls) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name, cls) for key, item in value.items()}
    raise ConfigError(
        f"metric {cls.__qualname__}: its argument {name} is a {type(value).__name__} that JSON cannot hold; take "
        "finite numbers, texts, and lists and dicts of them"
    )
