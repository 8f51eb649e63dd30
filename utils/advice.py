"""Tables of advice; an entry applies only if the flags in use do not follow it already."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Facts = TypeVar("Facts")

SHORT = 1.0
"""Wall seconds of a run below which advice is omitted, as start-up dominates."""


@dataclass(frozen=True)
class InUse:
    """The flags of a run.

    Attributes:
        flags: known values by name without dashes.
        orders: all values of flags that trade exactness for speed, the exact one first.
    """

    flags: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def has(self, name: str, value: str) -> bool:
        """Return whether a flag has this value, or a later one in its order."""
        now, order = self.flags.get(name), [str(one) for one in self.orders.get(name, ())]
        if value in order and str(now) in order:
            return order.index(str(now)) >= order.index(value)
        return str(now) == value


@dataclass(frozen=True)
class Advice(Generic[Facts]):
    """An entry of a table of advice.

    Attributes:
        about: its subject. text: what to do.
        flags: values of flags that the text asks for; if all are in use, the entry does not apply.
        when: further conditions.
    """

    about: str
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)
    when: Callable[[Facts], bool] = lambda _: True

    def open(self, in_use: InUse, facts: Facts) -> bool:
        """Return whether the entry applies."""
        asked = [not in_use.has(name, value) for name, value in self.flags.items()]
        return (any(asked) or not asked) and self.when(facts)


def advice(table: Iterable[Advice[Facts]], about: str, in_use: InUse, facts: Facts) -> Iterator[str]:
    """Yield the applicable texts of a table on a subject, in order."""
    return (row.text for row in table if row.about == about and row.open(in_use, facts))


_FLAG = re.compile(r"--(\w+) (\w+)")


def still_open(text: str, in_use: InUse) -> str:
    """Return a text of alternatives (``--decode reduced, or more cores``) without those whose flags are in use.

    Empty if none is left.
    """
    left = [one for one in text.split(", or ") if not _in_use(one, in_use)]
    return ", or ".join(left)


def _in_use(text: str, in_use: InUse) -> bool:
    flags = _FLAG.findall(text)
    return bool(flags) and all(in_use.has(*flag) for flag in flags)
