"""The profiler's figures under this device's name: ``table(sort_by="sdaa_time_total")``, like ``cuda_time_total``."""

from __future__ import annotations

import operator

from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg

_FIGURES = ("{}_time", "{}_time_total", "self_{}_time_total", "{}_memory_usage", "self_{}_memory_usage")


def add() -> None:
    """Add attributes with ``sdaa`` instead of ``device`` to events and their averages."""
    for figure in _FIGURES:
        for kind in (FunctionEvent, FunctionEventAvg):
            setattr(kind, figure.format("sdaa"), property(operator.attrgetter(figure.format("device"))))
