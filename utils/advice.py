"""Advice: what would help with something, said only where the flags in use leave it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Facts = TypeVar("Facts")

SHORT = 1.0
"""Wall seconds of a run below which nothing is advised: starting up is most of it, and nobody waits for it."""


@dataclass(frozen=True)
class InUse:
    """The flags of a run.

    Attributes:
        flags: values by name without dashes; what is not known is missing.
        orders: of flags that trade exactness for speed all values, the exact one first.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def has(self, name: str, value: str) -> bool:
        """Say whether a flag has this value already, or one that goes further."""
        now, order = self.flags.get(name), [str(one) for one in self.orders.get(name, ())]
        if value in order and str(now) in order:
            return order.index(str(now)) >= order.index(value)
        return str(now) == value


@dataclass(frozen=True)
class Advice(Generic[Facts]):
    """One row of a table of advice.

    Attributes:
        about: what it helps with. text: what to do.
        flags: values of flags that the text asks for; where all are in use, it is not said.
        when: further conditions.
    """

    about: str
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)
    when: Callable[[Facts], bool] = lambda _: True

    def open(self, in_use: InUse, facts: Facts) -> bool:
        """Say whether this is still to be done."""
        asked = [not in_use.has(name, value) for name, value in self.flags.items()]
        return (any(asked) or not asked) and self.when(facts)


def advice(table: Iterable[Advice[Facts]], about: str, in_use: InUse, facts: Facts) -> Iterator[str]:
    """Yield what a table advises about something, in its order."""
    return (row.text for row in table if row.about == about and row.open(in_use, facts))


_FLAG = re.compile(r"--(\w+) (\w+)")


def still_open(text: str, in_use: InUse) -> str:
    """Return a text of alternatives (``--decode reduced, or more cores``) without those whose flags are in use.

    Empty where none is left.
    """
    left = [one for one in text.split(", or ") if not _in_use(one, in_use)]
    return ", or ".join(left)


def _in_use(text: str, in_use: InUse) -> bool:
    flags = _FLAG.findall(text)
    return bool(flags) and all(in_use.has(*flag) for flag in flags)
