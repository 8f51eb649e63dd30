"""Arrival times of requests: Poisson, or recorded in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine import Array, ConfigError
from tecoexec.plan.simulate import poisson
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import one_line, shown_value

LEAST = 100
"""Fewest recorded arrivals: a 99th percentile needs so many."""

_MOST_BYTES = 512 * 2**20
_LATEST = 1e12  # seconds; beyond, a double does not hold milliseconds
WARM_UP = 0.1
"""Share of the Poisson arrivals that does not count: the queue begins empty."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A source of arrival times.

    Attributes:
        recorded: seconds since the first one, float64; ``None``: Poisson. count: number of Poisson arrivals.
        source: file of the recorded ones.
    """

    count: int
    recorded: Array | None = None
    source: Path | None = None

    @property
    def rate(self) -> float | None:
        """Mean rate of the recorded arrivals per second; ``None`` for Poisson ones."""
        return None if self.recorded is None else (len(self.recorded) - 1) / float(self.recorded[-1])

    @property
    def warm_up(self) -> int:
        """Number of first requests that do not count; none of the recorded ones."""
        return int(self.count * WARM_UP) if self.recorded is None else 0

    def times(self, rate: float) -> Array:
        """Return arrival times in seconds with a mean ``rate`` per second; recorded ones are stretched to it."""
        if self.recorded is None or self.rate is None:
            return poisson(rate, self.count)
        return self.recorded * (self.rate / rate)


def read_arrivals(path: Path) -> Arrivals:
    """Read recorded arrivals: a text file with one time in seconds per line, from any zero; ``#`` begins a comment.

    Raise ConfigError with the line if the file cannot be read, a line is not a number, a time is earlier than the one
    before, or there are fewer than :data:`LEAST`.
    """
    try:
        check_regular(path)
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"--arrivals {path} is larger than {_MOST_BYTES >> 20} MB; record a shorter time")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--arrivals {path} cannot be read: {one_line(error)}; give a time in seconds per line"
        ) from error
    times: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if word:
            times.append(_time(path, number, word, times[-1] if times else None))
    if len(times) < LEAST:
        raise ConfigError(f"--arrivals {path} has {len(times)} times; a 99th percentile needs {LEAST} or more")
    if times[-1] == times[0]:
        raise ConfigError(f"--arrivals {path}: all times are equal; give times in seconds, one per request")
    recorded = np.asarray(times) - times[0]
    return Arrivals(len(times), recorded, path)


def _time(path: Path, number: int, word: str, before: float | None) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not abs(value) <= _LATEST:
        raise ConfigError(f"--arrivals {path}, line {number}: {shown_value(word)} is not a time in seconds; correct it")
    if before is not None and value < before:
        raise ConfigError(
            f"--arrivals {path}, line {number}: {value:g} is earlier than {before:g} before it; sort the file"
        )
    return value
