"""Log lines of the logger ``torch_sdaa``: one for every distinct launch, like the host log of such cards."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from torch_sdaa.cost import prices
from torch_sdaa.loading.core import C

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL + 1)
"""Levels for the guides' numbers 0 to 4."""

_log = logging.getLogger("torch_sdaa")
_handler: logging.Handler | None = None


def _is_on(level: int) -> bool:
    """Return whether lines of a level are requested for this logger itself: the root logger's level has no effect.

    A script that sets the root logger to INFO means its own lines, not one for every distinct launch.
    """
    return _log.level != logging.NOTSET and _log.isEnabledFor(level)


def set_level(value: str) -> None:
    """Set the logger's level: ``0`` (debug) to ``4`` (off)."""
    _log.setLevel(LEVELS[int(value)])


def flush() -> None:
    """Price pending launches, so that they are logged."""
    if _is_on(logging.INFO):
        C.settle()


def set_stdout(value: str) -> None:
    """Send the lines to stdout (``1``), or to the handlers configured by the script (``0``)."""
    global _handler
    if _handler is not None:
        _log.removeHandler(_handler)
        _handler = None
    _log.propagate = value != "1"
    if value == "1":
        _handler = logging.StreamHandler(sys.stdout)
        _handler.setFormatter(logging.Formatter("[%(levelname)s] %(name)s: %(message)s"))
        _log.addHandler(_handler)


def logged(pricer: Callable[[Sequence[prices.Launch]], list[prices.Price]]) -> Callable[..., list[prices.Price]]:
    """Return a pricer that logs each distinct launch once."""

    def price(launches: Sequence[prices.Launch]) -> list[prices.Price]:
        found = pricer(launches)
        if _is_on(logging.INFO):
            for launch, each in zip(launches, found, strict=True):
                _note(launch, each)
        return found

    return price


def _note(launch: prices.Launch, price: prices.Price) -> None:
    op, inputs, outputs, flops = launch
    sides = " -> ".join(", ".join(map(_shown, metas)) or "nothing" for metas in (inputs, outputs))
    if not price.launches:
        _log.debug("%s: %s, a view: no launch", op, sides)
        return
    _log.info("%s: %s, %.3f us simulated", op, sides, price.seconds * 1e6)
    if _log.isEnabledFor(logging.DEBUG):
        work = prices.work(op, inputs, outputs, flops)
        _log.debug("%s: %.0f operations, %d bytes read, %d written", op, *work)


def _shown(meta: prices.Meta) -> str:
    return f"{prices.shown(meta[0])}[{'x'.join(map(str, meta[2]))}]"
