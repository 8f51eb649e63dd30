"""Flags of a plan, checked."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError
from tecoexec.load.settings import check_batching
from tecoexec.plan.arrivals import Arrivals, read_arrivals
from tecoinfer_modelzoo.text import shown_value

FLAGS = ("qps", "p99", "sweep_qps", "arrivals", "requests", "max_cards", "html")
"""Flags that need ``--plan``."""

LARGEST = 64
"""Largest batch of a server that is tried by default."""

_UNITS = {"": 1e-3, "ms": 1e-3, "s": 1.0, "us": 1e-6}
_MOST_QPS, _MOST_RATES = 1e7, 1000


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What is asked for.

    Attributes:
        rates: requests per second, ascending. swept: whether they are several. bound: of the 99th percentile, seconds.
        arrivals: their source. most_cards: most cards to try. largest: largest batch of a server.
        delay: the only queue delay to try, in seconds; ``None``: several.
    """

    rates: tuple[float, ...]
    swept: bool
    bound: float
    arrivals: Arrivals
    most_cards: int
    largest: int
    delay: float | None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a plan to the command line."""
    add = parser.add_argument_group("capacity planning").add_argument
    add("--plan", action="store_true", help="report the cards and the batching policy for a rate of requests")
    add("--qps", type=float, metavar="N", help="requests per second, of one sample each")
    add("--p99", metavar="TIME", help="bound of the 99th percentile of the latency: 50ms, 0.05s; a number is ms")
    add("--sweep_qps", metavar="LIST", help="plan several rates: 500,1000,2000 or 500:4000:500 (from, to, step)")
    add(
        "--arrivals",
        type=Path,
        metavar="FILE",
        help="recorded times of requests, seconds, one per line; default: Poisson",
    )
    add("--requests", type=int, metavar="N", help="number of simulated requests (default: 20000)")
    add("--max_cards", type=int, metavar="N", help="most cards to consider (default: 1024)")
    add("--html", type=Path, metavar="FILE", help="also write the plan as a page")


def plan_settings(args: argparse.Namespace) -> PlanSettings:
    """Return the settings of the parsed arguments; raise ConfigError for an invalid or missing one."""
    if args.p99 is None:
        raise ConfigError("--plan needs --p99, the bound of the latency; give it, such as --p99 50ms")
    bound = duration("--p99", args.p99)
    check_batching(args)
    for flag, least, most in (("requests", 1000, 10**7), ("max_cards", 1, 10**6)):
        value = getattr(args, flag)
        if value is not None and not least <= value <= most:
            raise ConfigError(f"--{flag} {value} must be from {least} to {most}")
    if args.arrivals is not None and args.requests is not None:
        raise ConfigError("--requests is for Poisson arrivals; leave it out with --arrivals, which are all simulated")
    arrivals = Arrivals(args.requests or 20_000) if args.arrivals is None else read_arrivals(args.arrivals)
    return PlanSettings(
        rates=_rates(args, arrivals),
        swept=args.sweep_qps is not None,
        bound=bound,
        arrivals=arrivals,
        most_cards=args.max_cards or 1024,
        largest=args.max_batch or LARGEST,
        delay=None if args.queue_delay is None else args.queue_delay * 1e-3,
    )


def duration(flag: str, text: str) -> float:
    """Return a time in seconds: a number with ``ms``, ``s`` or ``us``, or of milliseconds; raise ConfigError."""
    found = re.fullmatch(r"([0-9.eE+-]+)\s*(ms|us|s)?", text.strip())
    try:
        seconds = float(found[1]) * _UNITS[found[2] or ""] if found else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 86_400:
        raise ConfigError(f"{flag} {shown_value(text)} must be a time above 0, such as 50ms or 0.05s, at most a day")
    return seconds


def _rates(args: argparse.Namespace, arrivals: Arrivals) -> tuple[float, ...]:
    if args.sweep_qps is not None:
        if args.qps is not None:
            raise ConfigError("--qps and --sweep_qps exclude each other; leave one of them out")
        return _swept(args.sweep_qps)
    rate = args.qps if args.qps is not None else arrivals.rate
    if rate is None:
        raise ConfigError("--plan needs a rate; give --qps, --sweep_qps or --arrivals")
    if not 0 < rate <= _MOST_QPS:
        raise ConfigError(f"--qps {rate:g} must be above 0, at most {_MOST_QPS:g} requests per second")
    return (rate,)


def _swept(text: str) -> tuple[float, ...]:
    wrong = ConfigError(
        f"--sweep_qps {shown_value(text)} must be rates above 0, at most {_MOST_QPS:g}, such as 500,1000,2000, or "
        f"from, to and step, such as 500:4000:500; at most {_MOST_RATES} of them"
    )
    try:
        if ":" in text:
            low, high, step = (float(word) for word in text.split(":"))
            if not (0 < low <= high <= _MOST_QPS and step > 0) or (high - low) / step >= _MOST_RATES:
                raise wrong
            rates = [low + i * step for i in range(int((high - low) / step * (1 + 1e-12)) + 1)]
        else:
            rates = [float(word) for word in text.split(",")]
    except (ValueError, OverflowError) as error:
        raise wrong from error
    if not all(0 < rate <= _MOST_QPS for rate in rates) or len(rates) > _MOST_RATES:
        raise wrong
    return tuple(sorted(set(rates)))
