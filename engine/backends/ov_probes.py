"""Probes inside an OpenVINO model, which detect calls that OpenVINO does not compute exactly.

This module does not import OpenVINO: models are passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.backends.ov_guard import Guard, Probe

_PREFIX = "tecoinfer/probe"


def _measures(probe: Probe) -> tuple[str, ...]:
    return ("squares",) if probe.low is None and probe.high is None else ("squares", "least", "most")


def probe_names(guard: Guard) -> list[str]:
    """Return the names of the probes' outputs, in order."""
    return [f"{_PREFIX}{i}/{what}" for i, probe in enumerate(guard.probes) for what in _measures(probe)]


def add_probes(openvino: Any, model: Any, guard: Guard) -> None:
    """Add an output to an ``openvino.Model`` for each measured value; raise ValueError if it lacks a probe's tensor."""
    if not guard.probes:
        return
    ports = {name: port for node in model.get_ordered_ops() for port in node.outputs() for name in port.get_names()}
    results = []
    for index, probe in enumerate(guard.probes):
        if probe.tensor not in ports:
            raise ValueError(f"OpenVINO's model has no tensor {probe.tensor!r}")
        for what in _measures(probe):
            port = _measured(openvino.opset13, ports[probe.tensor], what, openvino.Type.f32)
            port.set_names({f"{_PREFIX}{index}/{what}"})
            results.append(openvino.opset13.result(port))
    model.add_results(results)


def _measured(opset: Any, port: Any, what: str, float32: Any) -> Any:
    """Return the port of one measured value of a tensor."""
    import numpy as np

    values = opset.convert(port, float32) if port.get_element_type() != float32 else port
    flat = opset.reshape(values, np.array([-1], np.int64), False)
    axis = np.array([0], np.int64)
    if what == "squares":
        return opset.reduce_sum(opset.multiply(flat, flat), axis, False).output(0)
    reduce = opset.reduce_min if what == "least" else opset.reduce_max
    return reduce(flat, axis, False).output(0)


def probes_hold(guard: Guard, measured: Sequence[Any]) -> bool:
    """Return whether all values measured in a call, the outputs of :func:`probe_names` in order, are allowed."""
    values = iter(measured)
    for probe in guard.probes:
        found = [float(next(values)) for _ in _measures(probe)]
        least, most = found[1:] if len(found) > 1 else (None, None)
        if not probe.holds(found[0], least, most):
            return False
    return True
