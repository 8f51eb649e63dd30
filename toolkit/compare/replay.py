"""Run every node on the baseline's values, in one run of one graph, to get the isolated error of each.

Each node reads graph inputs, fed with the baseline's values, instead of the outputs of preceding nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, ModelError
from toolkit.graph.trace import Traced, mark
from toolkit.graph.weights import open_marked

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from engine.backends import HostSession

_SHAPES = frozenset(("Constant", "Shape", "Size"))
_FLOAT, _HALF = 1, 10


class Replay:
    """The isolated nodes of a traced model; ``values``: tensors that the baseline provides.

    Nodes fused into one kernel stay together: the kernel reads the baseline's values. Values that depend only on
    constants and shapes are computed, not fed.
    """

    def __init__(self, traced: Traced, values: Collection[str]) -> None:
        if traced.model is None:
            raise ModelError(f"target {traced.target!r} does not expose its graph; nodes cannot be replayed alone")
        self._traced = traced
        data = _from_inputs(traced.model.graph)
        self.cuts = {
            name: now
            for name, now in traced.origin.items()
            if name in values and traced.kinds[name] and now in data and name not in traced.skipped
        }
        self._model = _cut(traced, self.cuts)
        self._session: HostSession | None = None
        self._names: list[str] = []
        self._writers = {name: node for node in self._model.graph.node for name in node.output if name}

    def needs(self, names: Collection[str]) -> set[str]:
        """Return the original tensors whose baseline values are needed to replay ``names``."""
        _, inputs = self._needed(names)
        return {name for name in self.cuts if _fed(name) in inputs}

    def run(
        self,
        inputs: Sequence[Array],
        values: Mapping[str, Array],
        only: Collection[str] | None = None,
        keep: bool = False,
    ) -> dict[str, Array]:
        """Compute every node once; return tensors by original name, those in ``only`` (``None``: all replayable ones).

        ``values``: the baseline's by original name, at least those of :meth:`needs`. ``keep``: keep the session for
        further runs of the same tensors.
        """
        names = [name for name in self.cuts if only is None or name in only]
        if not names:
            return {}
        if self._session is None or self._names != names:
            self._session = None  # before another one takes its memory
        session = self._session or self._open(names)
        if keep:
            self._session, self._names = session, names
        given = dict(zip([spec.name for spec in self._traced.inputs], self._traced.feed(inputs), strict=True))
        by_feed = {_fed(name): name for name in self.cuts}
        feed = {
            spec.name: given[spec.name] if spec.name in given else _as(values[by_feed[spec.name]], spec.dtype)
            for spec in session.inputs
        }
        return dict(zip(names, session.run_named(feed), strict=True))

    def _needed(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the tensors that the nodes producing ``names`` write, and the graph inputs and weights they read."""
        from engine.onnx import used_names

        written: set[str] = set()
        read: set[str] = set()
        todo = [self.cuts[name] for name in names if name in self.cuts]
        while todo:
            name = todo.pop()
            if name in written or name in read:
                continue
            node = self._writers.get(name)
            if node is None:
                read.add(name)
                continue
            written.update(node.output)
            todo.extend(used_names(node))
        return written, read

    def _open(self, names: Sequence[str]) -> HostSession:
        from onnx import ModelProto

        written, read = self._needed(names)
        whole = self._model.graph
        part = ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
        graph = part.graph
        graph.name = whole.name
        graph.node.extend(node for node in whole.node if written.intersection(node.output))
        graph.input.extend(info for info in whole.input if info.name in read)
        graph.initializer.extend(tensor for tensor in whole.initializer if tensor.name in read)
        mark(graph, [self.cuts[name] for name in names])
        try:
            return open_marked(part, self._traced.weights)
        except ModelError as error:
            raise ModelError(f"{self._traced.path}: cut into single nodes: {error}") from error


def _fed(name: str) -> str:
    return f"{name}:fed"


def _rounded(name: str) -> str:
    return f"{name}:fed:rounded"


def _as(array: Array, dtype: np.dtype[np.generic]) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def _from_inputs(graph: GraphProto) -> set[str]:
    """Return the tensors whose values depend on the values of graph inputs, not only on their shapes."""
    from engine.onnx import used_names

    constants = {tensor.name for tensor in graph.initializer}
    found = {info.name for info in graph.input} - constants
    for node in graph.node:
        if node.op_type not in _SHAPES and found.intersection(used_names(node)):
            found.update(filter(None, node.output))
    return found


def _cut(traced: Traced, cuts: Mapping[str, str]) -> ModelProto:
    """Return a copy of the graph in which the readers of every cut tensor read the fed value."""
    from onnx import ModelProto, helper

    from engine.onnx import rename_inputs

    assert traced.model is not None  # noqa: S101 - checked by the constructor
    model = ModelProto()
    model.CopyFrom(traced.model)
    graph = model.graph
    written = {name for node in graph.node for name in node.output if name}
    reads: dict[str, str] = {}
    own: set[str] = set()
    casts: list[NodeProto] = []
    for name in cuts:
        graph.input.append(helper.make_tensor_value_info(_fed(name), _element(traced, name), None))
        instead = _instead(name, traced, written)
        reads |= instead
        # Casts between forms of a tensor still read the output of its node.
        own |= {f"{name}:half", f"{name}:rounded", *([name] if f"{name}:value" in written else [])}
        if _rounded(name) in instead.values():
            casts += _rounding(name)
    for node in graph.node:
        if not own.intersection(node.output):
            rename_inputs(node, reads)
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return model


def _instead(name: str, traced: Traced, written: Collection[str]) -> dict[str, str]:
    """Return for each form of a tensor the name its readers read instead: of the fed or of the rounded value."""
    rounds = traced.wide and _element(traced, name) == _FLOAT
    forms = [form for form in (name, f"{name}:value", f"{name}:rounded") if form in written]
    stored = {form: form.endswith(":rounded") or name in traced.half for form in forms}
    return {form: _rounded(name) if rounds and stored[form] else _fed(name) for form in forms}


def _rounding(name: str) -> list[NodeProto]:
    """Return the casts that round the fed value to the storage precision."""
    from onnx import helper

    half = f"{_fed(name)}:half"
    return [
        helper.make_node("Cast", [_fed(name)], [half], f"{half}:cast", to=_HALF),
        helper.make_node("Cast", [half], [_rounded(name)], f"{_rounded(name)}:cast", to=_FLOAT),
    ]


def _element(traced: Traced, name: str) -> int:
    """Return the element type of a tensor in the graph that runs."""
    kind = traced.kinds[name]
    if kind not in (_FLOAT, _HALF) or traced.wide:
        return _FLOAT if kind == _HALF else kind
    return _HALF if name in traced.half else _FLOAT
