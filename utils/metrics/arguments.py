"""The arguments of a metric in JSON."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import ConfigError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def plain_arguments(cls: type[object], args: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a metric by name; defaults that are not JSON values are omitted.

    Args:
        cls: the metric's class.
        args, given: the positional and keyword arguments.

    Raises:
        ConfigError: an argument is positional-only or variadic, or is not a JSON value.
    """
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *args, **given)
    except TypeError as error:  # the class has a __new__ that passes other arguments on
        raise ConfigError(f"metric {cls.__qualname__}: {error}; do not define __new__ in it") from error
    taken = list(bound.arguments)[1:]
    bound.apply_defaults()
    options: dict[str, Any] = {}
    for name, value in list(bound.arguments.items())[1:]:
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            options |= {key: _plain(item, key, cls) for key, item in value.items()}
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY) and name in taken:
            raise ConfigError(f"metric {cls.__qualname__}: argument {name} is positional-only; make it a named one")
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
    """Return a value as JSON type; tuples become lists, NumPy scalars Python numbers."""
    if isinstance(value, np.generic):
        value = value.item()
    if _is_scalar(value):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, name, cls) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name, cls) for key, item in value.items()}
    raise ConfigError(
        f"metric {cls.__qualname__}: argument {name} is a {type(value).__name__}, which JSON does not support; use "
        "finite numbers, texts, and lists and dicts of them"
    )
