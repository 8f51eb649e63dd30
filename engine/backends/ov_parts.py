"""Parts of an OpenVINO model in float32 and bfloat16 (it takes one precision), and probes for inexact calls.

This module does not import OpenVINO: models are passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.backends.ov_guard import Guard, Probe

if TYPE_CHECKING:
    from onnx import ModelProto

_PREFIX = "tecoinfer/probe"


def exact_edges(model: ModelProto) -> set[str]:
    """Return the tensors that float32 nodes pass to the others, or out of the model.

    If such nodes depend on the others (the index of a heat map's maximum), these are the model's outputs: all of it has
    to be computed before them, in float32 as well.

    Args:
        model: in topological order, as in its file.
    """
    from engine.onnx.shapes import infer_shapes
    from engine.onnx.view import used_names
    from engine.onnx.whole_numbers import exact_parts
    from tecoinfer_modelzoo.errors import ModelError

    try:
        graph = infer_shapes(model).graph
    except ModelError:
        return set()  # the runtimes report the error
    parts = exact_parts(graph)
    if parts.late:
        return {info.name for info in graph.output}
    exact = set(parts.written)
    fixed = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    read = {name for node in graph.node if exact.isdisjoint(node.output) for name in used_names(node)}
    read |= {info.name for info in graph.output}
    return set(exact) & read - fixed


def parted(openvino: Any, model: Any, edges: Collection[str]) -> tuple[Any | None, Any | None]:
    """Split an ``openvino.Model`` into the part that computes the tensors of these names, and the rest.

    ``None`` stands for an empty part. Outputs that both parts could return belong to the first.
    """
    if not edges or not _ports(model, edges) or model.get_sinks():
        return None, model
    first, rest = model.clone(), model.clone()
    made = _ports(first, edges)
    first_results, _ = _sorted_results(first, edges)
    there = {name for result in first_results for name in result.input_value(0).get_names()}
    first.add_results([openvino.opset13.result(port) for name, port in made.items() if name not in there])
    for result in _sorted_results(first, edges)[1]:
        first.remove_result(result)
    for result in _sorted_results(rest, edges)[0]:
        rest.remove_result(result)
    if not rest.get_results():
        return model, None
    rest.add_parameters([_replaced(openvino, name, port) for name, port in _ports(rest, edges).items()])
    for part in (first, rest):
        _drop_unread(part)
    return first, rest


def _sorted_results(model: Any, names: Collection[str]) -> tuple[list[Any], list[Any]]:
    given: tuple[list[Any], list[Any]] = [], []
    for result in model.get_results():
        given[result.input_value(0).get_names().isdisjoint(names)].append(result)
    return given


def _ports(model: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the outputs of a model's nodes that have these names."""
    ports = (port for node in model.get_ordered_ops() for port in node.outputs())
    return {name: port for port in ports for name in sorted(port.get_names()) if name in names}


def _replaced(openvino: Any, name: str, port: Any) -> Any:
    """Return a new parameter that replaces the output of a node for all its readers."""
    parameter = openvino.opset13.parameter(port.get_partial_shape(), port.get_element_type(), name=f"{name}/float32")
    readers = port.get_target_inputs()
    names = port.get_names()
    port.set_names(set())
    parameter.output(0).set_names(names)
    for reader in readers:
        reader.replace_source_output(parameter.output(0))
    return parameter


def _drop_unread(model: Any) -> None:
    seen: set[str] = set()
    todo = list(model.get_results())
    while todo:
        node = todo.pop()
        if node.get_name() not in seen:
            seen.add(node.get_name())
            todo.extend(port.get_node() for port in node.input_values())
    for parameter in model.get_parameters():
        if parameter.get_name() not in seen:
            model.remove_parameter(parameter)


class Request:
    """A call's request: the float32 part, if any, then the rest (``parts``, compiled); ``outputs``: names, in order."""

    def __init__(self, parts: Sequence[Any], outputs: Sequence[str]) -> None:
        self._parts = [(part, part.create_infer_request()) for part in parts]
        self._outputs = outputs

    def infer(self, feed: Mapping[str, Any]) -> list[Any]:
        """Compute a call; the arrays are only read, and the returned ones belong to the caller."""
        known = dict(feed)
        for part, request in self._parts:
            found = request.infer({port: known[_known(port, known)] for port in part.inputs}, share_inputs=True)
            known |= {name: found[port] for port in part.outputs for name in port.get_names()}
        return [known[name] for name in self._outputs]

    def cancel(self) -> None:
        """Stop between two operators; the call raises."""
        for _, request in self._parts:
            request.cancel()


def _known(port: Any, known: Mapping[str, Any]) -> str:
    """Return a name of a port for which a tensor is available."""
    return str(min(port.get_names() & known.keys()))


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
