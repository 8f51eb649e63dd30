"""Closed forms of queueing theory, with which simulations are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import exp, factorial, log


def md1_mean_wait(rate: float, service: float) -> float:
    """Return the mean wait before service in M/D/1, in seconds: rho s / (2 (1 - rho)).

    Pollaczek-Khinchine formula with a constant service time (L. Kleinrock, Queueing Systems, volume 1, 1975, equation
    5.72).
    """
    load = rate * service
    return load * service / (2 * (1 - load))


def md1_wait_exceeds(rate: float, service: float, seconds: float) -> float:
    """Return the probability that a wait in M/D/1 exceeds some seconds.

    P(W <= t) = (1 - rho) sum over k from 0 to floor(t / s) of (rate (k s - t))^k / k! exp(-rate (k s - t)) (A. K.
    Erlang, The theory of probabilities and telephone conversations, 1909; H. C. Tijms, A First Course in Stochastic
    Models, 2003, section 9.2.2).
    """
    load = rate * service
    terms = (
        (rate * (k * service - seconds)) ** k / factorial(k) * exp(-rate * (k * service - seconds))
        for k in range(int(seconds / service) + 1)
    )
    return 1 - (1 - load) * math.fsum(terms)


def erlang_c(rate: float, service: float, servers: int) -> float:
    """Return the probability that a request waits in M/M/c (A. K. Erlang, 1917; Kleinrock, equation 3.40)."""
    offered = rate * service
    busy = offered**servers / factorial(servers) / (1 - offered / servers)
    return busy / (sum(offered**k / factorial(k) for k in range(servers)) + busy)


def mmc_mean_wait(rate: float, service: float, servers: int) -> float:
    """Return the mean wait before service in M/M/c, in seconds: C / (c / s - rate)."""
    return erlang_c(rate, service, servers) / (servers / service - rate)


def mmc_wait_quantile(rate: float, service: float, servers: int, share: float) -> float:
    """Return the wait that a share of the requests of M/M/c does not exceed: P(W > t) = C exp(-(c / s - rate) t)."""
    waiting = erlang_c(rate, service, servers)
    return max(0.0, log(waiting / (1 - share)) / (servers / service - rate))


def solved(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function is 0, by halving the interval."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2
