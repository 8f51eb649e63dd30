"""Checks of flags that several tasks have."""

from __future__ import annotations

from collections.abc import Iterable

from engine import ConfigError
from utils.tasks.base import Options


def at_least(options: Options, **least: int) -> None:
    """Check that whole numbers, or lists of them, are not below a limit; ``None`` passes.

    Args:
        options: the flags. least: limits by flag, such as ``topk=1``.

    Raises:
        ConfigError: a number is below its limit.
    """
    for key, limit in least.items():
        given = getattr(options, key)
        listed = isinstance(given, Iterable)
        values = list(given) if listed else [] if given is None else [given]
        if any(value < limit for value in values):
            shown = " ".join(map(str, values))
            raise ConfigError(f"--{key} {shown} must be at least {limit}{' each' if listed else ''}")
