"""A warning about an environment that does not return: what it does is its own affair, and may last for ever."""

from __future__ import annotations

from collections.abc import Iterator

from engine import one_line
from utils import stuck
from utils.stuck import Overdue


class Stuck(Overdue):
    """Reports on stderr, once for each call, one of an environment that has lasted for long.

    Use as a context. Whoever calls an environment sets ``doing`` before, to ``(what, seed, since)`` with ``since`` of
    :func:`time.perf_counter`, and to ``None`` behind it.

    Args:
        environment: its name.
    """

    def __init__(self, environment: str) -> None:
        super().__init__(self._call)
        self.doing: tuple[str, int, float] | None = None
        self._environment = one_line(environment)

    def _call(self) -> Iterator[tuple[float, str]]:
        doing = self.doing
        if doing is not None:
            what, seed, since = doing
            yield (
                since,
                f"the environment {self._environment} has not come back from {what} of seed {seed} for "
                f"{stuck.PATIENCE:g} s, and may never; Ctrl-C ends the run; try the environment alone with this seed",
            )
