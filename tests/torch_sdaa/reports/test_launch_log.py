"""The launch log under stress: failing costs, and the limits of its memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.loading.core import C
from torch_sdaa.reports import publish, summaries

Prices = list[tuple[float, float, bool]]


@pytest.fixture
def pricer() -> Iterator[Callable[[Callable[[str], Any]], None]]:
    """Let a test set the costs of operators, without other callers."""
    assert summaries._pricer is not None
    C.settle()
    publishing = publish.is_on()
    publish.stop()

    def use(answer: Callable[[str], Any]) -> None:
        def answers(launches: Sequence[tuple[str, Any, Any, float]]) -> list[Any]:
            return [answer(op) for op, *_ in launches]

        C.set_pricer(answers)

    yield use
    C.set_pricer(summaries._pricer)
    C.settle()
    if publishing:
        publish.start()


@pytest.fixture
def limits(pricer: object) -> Iterator[None]:
    """Process at 8 entries, wait for costs at 16, keep 4 launches, trace 5."""
    old = C.limits(8, 16, 4, 5)
    yield
    C.limits(*old)


def _settled() -> list[str]:
    """Compute the costs of launches, and return the messages: at most one warning, the first of the process."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        C.settle()
    assert len(said) <= 1
    return [str(one.message) for one in said]


def _raises(op: str) -> tuple[float, float, bool]:
    if op == "aten::cos":
        raise ValueError("no such shape\nin the rules")
    return 1e-3, 0.0, True


def test_an_error_of_the_pricer_affects_one_launch_only(pricer: Any) -> None:
    x = torch.ones(3, 41, device="sdaa:2")
    C.settle()
    pricer(_raises)
    before = C.times(2)
    for step in (x.sin, x.cos, x.tan):
        step()
    said = _settled()
    assert all(text.startswith("aten::cos has no simulated time, because it could not be priced: ") for text in said)
    assert C.log_length() == 0
    after = C.times(2)
    assert after["launches"] - before["launches"] == 3
    assert after["compute"] - before["compute"] == pytest.approx(2e-3)
    assert C.unpriced()["aten::cos"] == "ValueError: no such shape"
    summary = summaries.time_summary()
    assert "without simulated time: aten::cos, which could not be priced: ValueError: no such" in summary


@pytest.mark.parametrize("answer", [(float("nan"), 0.0, True), (-1.0, 0.0, True), ("a", 0.0, True), None])
def test_an_invalid_price_is_not_used(pricer: Any, answer: Any) -> None:
    x = torch.ones(2, 43, device="sdaa:2")
    C.settle()
    pricer(lambda op: answer)
    now = C.times(2)["now"]
    x.tanh().add_(1)
    _settled()
    assert C.log_length() == 0
    assert C.times(2)["now"] >= now
    assert "aten::tanh" in C.unpriced()


def test_ctrl_c_during_pricing_is_raised_and_pricing_continues_later(pricer: Any) -> None:
    def stopped(op: str) -> Prices:
        raise KeyboardInterrupt

    x = torch.ones(2, 47, device="sdaa:2")
    C.settle()
    pricer(stopped)
    before = C.times(2)["compute"]
    x.atan()
    with pytest.raises(KeyboardInterrupt):
        C.settle()
    pricer(lambda op: (2e-3, 0.0, True))
    C.settle()
    assert C.times(2)["compute"] - before == pytest.approx(2e-3)


def test_a_long_log_is_priced_automatically(limits: None, pricer: Any) -> None:
    x = torch.ones(2, 53, device="sdaa:2")
    C.settle()
    longest = 0
    for n in range(64):
        torch.ones(n + 1, 53, device="sdaa:2").neg()
        longest = max(longest, C.log_length())
    assert 8 <= longest <= 24
    x.neg()


def _launches_of(op: str) -> tuple[int, float]:
    """Return how often an operator was launched, and its simulated seconds."""
    found = [(count, seconds) for (name, *_), count, seconds, _ in C.signatures() if name == op]
    return sum(count for count, _ in found), sum(count * seconds for count, seconds in found)


def test_dropped_launches_are_counted(limits: None, pricer: Any) -> None:
    pricer(lambda op: (1e-3, 0.0, True))
    C.settle()
    count, seconds = _launches_of("aten::erfinv")
    for n in range(40):
        torch.zeros(n + 1, 59, device="sdaa:2").erfinv()
        C.settle()
    assert len([1 for (_, inputs, *_), *_ in C.signatures() if inputs]) <= 4 + 2
    after = _launches_of("aten::erfinv")
    assert after[0] - count == 40
    assert after[1] - seconds == pytest.approx(40e-3)


def test_a_trace_has_the_number_of_dropped_spans(limits: None) -> None:
    x = torch.ones(2, 61, device="sdaa:2")
    C.settle()
    C.trace(True)
    for _ in range(12):
        x.neg()
    spans, dropped = C.trace(False)
    assert (len(spans), dropped) == (5, 7)


def test_the_length_between_two_walks_is_a_power_of_2() -> None:
    with pytest.raises(ValueError, match="power of 2, not 12"):
        C.limits(12, 16, 4, 5)
