"""A model for OpenVINO in two parts: what has to compute in float32 first, then the rest, in bfloat16.

OpenVINO takes one precision for all of a compiled model. Nothing here imports it: models are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto


def exact_edges(model: ModelProto) -> set[str]:
    """Return the tensors that nodes which stay float32 hand to the others, or out of the model.

    Args:
        model: in topological order, as it is in its file.
    """
    import onnx

    from engine.onnx.shapes import infer_shapes
    from engine.onnx.view import used_names
    from engine.onnx.whole_numbers import exact_outputs

    try:
        graph = infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:
        return set()  # the runtimes judge it
    exact = exact_outputs(graph)
    fixed = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    read = {name for node in graph.node if exact.isdisjoint(node.output) for name in used_names(node)}
    read |= {info.name for info in graph.output}
    return exact & read - fixed


def parted(openvino: Any, model: Any, edges: Collection[str]) -> tuple[Any | None, Any]:
    """Return the part of an ``openvino.Model`` that makes the tensors of these names, and one that takes them.

    The first is ``None``, and the second the model itself, where there are no such tensors.
    """
    made = _ports(model, edges) if edges else {}
    if not made or model.get_sinks():
        return None, model
    rest = model.clone()
    taken = _ports(rest, edges)
    results = [_result(openvino, port) for port in made.values()]
    first = openvino.Model(results, _parameters(results), "float32")
    added = [_replaced(openvino, name, port) for name, port in taken.items()]
    ends = rest.get_results()
    return first, openvino.Model(ends, [*_parameters(ends, added), *added], "rest")


def _ports(model: Any, names: Collection[str]) -> dict[str, Any]:
    """Return the outputs of a model's nodes that have these names."""
    ports = (port for node in model.get_ordered_ops() for port in node.outputs())
    return {name: port for port in ports for name in sorted(port.get_names()) if name in names}


def _result(openvino: Any, port: Any) -> Any:
    """Return what makes an output of a node one of the model: what does already, as there may be one only."""
    readers = (reader.get_node() for reader in port.get_target_inputs())
    found = next((node for node in readers if node.get_type_name() == "Result"), None)
    return openvino.opset13.result(port) if found is None else found


def _replaced(openvino: Any, name: str, port: Any) -> Any:
    """Return a new parameter that everything reads which has read an output of a node."""
    parameter = openvino.opset13.parameter(port.get_partial_shape(), port.get_element_type(), name=f"{name}/float32")
    readers = port.get_target_inputs()
    names = port.get_names()
    port.set_names(set())
    parameter.output(0).set_names(names)
    for reader in readers:
        reader.replace_source_output(parameter.output(0))
    return parameter


def _parameters(ends: Iterable[Any], but: Iterable[Any] = ()) -> list[Any]:
    """Return the parameters that some nodes depend on, without some others."""
    left = {parameter.get_name() for parameter in but}
    seen: set[str] = set()
    found: list[Any] = []
    todo = list(ends)
    while todo:
        node = todo.pop()
        name = node.get_name()
        if name in seen:
            continue
        seen.add(name)
        if node.get_type_name() == "Parameter" and name not in left:
            found.append(node)
        todo.extend(port.get_node() for port in node.input_values())
    return found


class Request:
    """One call under way: the float32 part, if there is one, and then the rest."""

    def __init__(self, compiled: Any, first: Any | None) -> None:
        self._main = compiled.create_infer_request()
        self._names = _names(compiled)
        self._first = None if first is None else first.create_infer_request()
        self._first_names = set() if first is None else _names(first)
        self._made = {} if first is None else {port.get_any_name(): port for port in first.outputs}

    def infer(self, feed: Mapping[str, Any]) -> Any:
        """Compute; the arrays are only read meanwhile, and what comes back is by the rest's output ports."""
        if self._first is None:
            return self._main.infer(feed, share_inputs=True)
        given = {name: array for name, array in feed.items() if name in self._first_names}
        found = self._first.infer(given, share_inputs=True)
        both = {**feed, **{name: found[port] for name, port in self._made.items()}}
        return self._main.infer({name: array for name, array in both.items() if name in self._names}, share_inputs=True)

    def cancel(self) -> None:
        """Stop between two operators; the call raises."""
        self._main.cancel()
        if self._first is not None:
            self._first.cancel()


def _names(compiled: Any) -> set[str]:
    return {name for port in compiled.inputs for name in port.get_names()}
