"""One node cut out of a model, with its inputs and the baseline's outputs: a test for whoever owns the operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from engine.base import Array, ConfigError, DataError, EngineSpec, ModelError
from engine.registry import open_engine
from toolkit.arguments import did_you_mean
from toolkit.inputs import Shapes
from toolkit.intermediates import load_named, nodes_of, traced

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

RUNS = (("onnx", "float32", 1e-5), ("sdaa", "float32", 1e-5), ("sdaa", "float16", 1e-2))
"""Target, precision, and the largest error a case tolerates, as a share of the largest value of an output."""

_TEST = Path(__file__).resolve().parent / "ops" / "optest.py.tmpl"
_MODEL, _DATA = "model.onnx", "data.npz"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went on one engine.

    Attributes:
        target, dtype, tolerance: an entry of :data:`RUNS`.
        error: largest difference to the baseline as a share of its largest value; ``None`` where it did not run.
        reason: why it did not run, else "".
    """

    target: str
    dtype: str
    tolerance: float
    error: float | None
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran and is near enough; NaN is not."""
        return self.error is not None and self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Case:
    """A test case on disk.

    Attributes:
        folder: holds the files. node, op: which node. test: the pytest file.
        inputs, outputs: what the node's model takes, and the baseline's answer, by name.
    """

    folder: Path
    node: str
    op: str
    test: Path
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def find_node(model: ModelProto, wanted: str, path: Path) -> NodeProto:
    """Return the node meant by a name, a position such as ``12``, or the name of a tensor it writes.

    Args:
        model: with unique node names (:func:`toolkit.intermediates.load_named`). wanted: the word. path: for messages.

    Raises:
        ConfigError: there is no such node.
    """
    nodes: list[NodeProto] = list(model.graph.node)
    for fits in (
        lambda i, node: node.name == wanted,
        lambda i, node: wanted in node.output,
        lambda i, node: wanted.removeprefix("#") == str(i),
    ):
        found = [node for i, node in enumerate(nodes) if fits(i, node)]
        if found and wanted:
            return found[0]
    near = did_you_mean(wanted, [name for node in nodes for name in (node.name, *node.output)])
    raise ConfigError(
        f"{path} has no node {wanted!r};{near} pass a node's name, a tensor it writes, or 0 to {len(nodes) - 1}"
    )


def single_node(model: ModelProto, node: NodeProto, values: Mapping[str, Array] | None = None) -> ModelProto:
    """Return a model of one node; weights come along, everything else it reads is an input.

    Args:
        model: where the node is; types are read off it, so infer shapes first where ``values`` does not hold all.
        node: one of its nodes. values: known arrays by tensor name; they give inputs their exact shape.

    Raises:
        ModelError: the type of something the node reads is not known.
    """
    from onnx import ModelProto, helper

    from engine.onnx_graph import used_names

    weights = {tensor.name: tensor for tensor in constants(model)}
    infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output, *model.graph.input)}
    read = list(dict.fromkeys(used_names(node)))
    inputs = [_input(name, infos, values or {}, node) for name in read if name not in weights]
    outputs = [_untyped(name) for name in node.output if name]
    held = [weights[name] for name in read if name in weights]
    graph = helper.make_graph([node], node.name or node.op_type, inputs, outputs, held)
    cut = ModelProto()
    cut.CopyFrom(
        helper.make_model(
            graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4), functions=model.functions
        )
    )
    return cut


def constants(model: ModelProto) -> list[TensorProto]:
    """Return the main graph's weights: initializers, and tensors of Constant nodes under the name of their output."""
    from onnx import TensorProto

    found = list(model.graph.initializer)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensor = TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                found.append(tensor)
    return found


def _input(
    name: str, infos: Mapping[str, ValueInfoProto], values: Mapping[str, Array], node: NodeProto
) -> ValueInfoProto:
    from onnx import helper

    if name in values:
        kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
        return helper.make_tensor_value_info(name, kind, values[name].shape)
    if name not in infos:
        raise ModelError(f"node {node.name!r}: the type of its input {name!r} is not known; export the model again")
    return infos[name]


def _untyped(name: str) -> ValueInfoProto:
    from onnx import ValueInfoProto

    return ValueInfoProto(name=name)


def typed(model: ModelProto) -> ModelProto:
    """Return a model whose outputs have the types that follow from its inputs.

    Raises:
        ModelError: onnx has no schema for the node's operator.
    """
    from engine.onnx_graph import infer_shapes

    inferred = infer_shapes(model)
    if any(info.type.WhichOneof("value") is None for info in inferred.graph.output):
        op = model.graph.node[0]
        raise ModelError(
            f"operator {op.domain or 'ai.onnx'}::{op.op_type} is unknown to onnx: its outputs have no type"
        )
    return inferred


def write_case(
    path: Path, wanted: str, out: Path, inputs: Sequence[Array], *, batch: int = 1, shapes: Shapes | None = None
) -> Case:
    """Cut a node out and write ``model.onnx``, ``data.npz`` and a pytest file that needs nothing but the zoo.

    Args:
        path: the ONNX file. wanted: the node (:func:`find_node`). out: folder to write, made where it is missing.
        inputs: of the whole model; it is run once on the baseline, float32, to see what reaches the node.
        batch, shapes: as for :func:`toolkit.intermediates.traced`.

    Raises:
        ConfigError: there is no such node.
        ModelError: it reads or writes something that is no array of numbers, or its operator is unknown to onnx.
        DataError: the folder cannot be written.
    """
    model = load_named(path)
    node = find_node(model, wanted, path)
    values = _values(path, model, node, inputs, batch, shapes)
    cut = typed(single_node(model, node, values))
    feed = {info.name: values[info.name] for info in cut.graph.input}
    answer = {info.name: values[info.name] for info in cut.graph.output}
    arrays = {f"in{i}": array for i, array in enumerate(feed.values())}
    arrays |= {f"out{i}": array for i, array in enumerate(answer.values())}
    case_runs = runs_of(arrays.values())
    test = out / f"test_{re.sub(r'[^A-Za-z0-9]+', '_', node.name).strip('_').lower() or 'node'}.py"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / _MODEL).write_bytes(cut.SerializeToString())
        np.savez(out / _DATA, **arrays)  # type: ignore[arg-type]
        test.write_text(_source(path, node, case_runs), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror}; choose another --out") from error
    return Case(out, node.name, node.op_type, test, feed, answer)


def _values(
    path: Path, model: ModelProto, node: NodeProto, inputs: Sequence[Array], batch: int, shapes: Shapes | None
) -> dict[str, Array]:
    """Return all that the node reads and writes on the baseline."""
    from engine.onnx_graph import used_names

    needed = {*used_names(node), *filter(None, node.output)}
    with traced(path, "onnx", dtype="float32", batch=batch, shapes=shapes, only=needed) as run:
        odd = sorted(needed & run.skipped.keys())
        if odd:
            kind = run.skipped[odd[0]]
            raise ModelError(f"node {node.name!r} uses {odd[0]!r}, a {kind} and no array of numbers; cut out another")
        values = run.run(inputs)
        values |= dict(zip([spec.name for spec in run.inputs], run.feed(inputs), strict=True))
    return values


def _source(path: Path, node: NodeProto, runs: Sequence[tuple[str, str, float]]) -> str:
    def plain(text: str) -> str:
        return re.sub(r'[\\"\r\n\x00-\x1f]', "_", text)

    words = {"op": plain(node.op_type), "node": plain(node.name), "model": plain(path.name), "runs": repr(runs)}
    return Template(_TEST.read_text(encoding="utf-8")).substitute(words)


def runs_of(arrays: Iterable[Array]) -> list[tuple[str, str, float]]:
    """Return :data:`RUNS`, with float16's tolerance for all where the values themselves hold its rounding."""
    narrow = any(array.dtype == np.float16 for array in arrays)
    return [(target, dtype, max(limit, RUNS[-1][2]) if narrow else limit) for target, dtype, limit in RUNS]


def run_case(case: Case) -> list[Outcome]:
    """Run a case on the engines of :data:`RUNS` as its test does; an engine that refuses is an outcome too."""
    runs = runs_of([*case.inputs.values(), *case.outputs.values()])
    return [_outcome(case, target, dtype, tolerance) for target, dtype, tolerance in runs]


def _outcome(case: Case, target: str, dtype: str, tolerance: float) -> Outcome:
    from engine.base import TecoInferError

    try:
        with open_engine(target, EngineSpec(case.folder / _MODEL, dtype=dtype, divided=False)) as engine:
            with np.errstate(over="ignore"):
                feed = [a.astype(s.dtype) for a, s in zip(case.inputs.values(), engine.inputs, strict=True)]
            found = engine(feed)
    except TecoInferError as error:
        return Outcome(target, dtype, tolerance, None, str(error))
    results = [found] if isinstance(found, np.ndarray) else found
    return Outcome(target, dtype, tolerance, worst_error(results, list(case.outputs.values())))


def worst_error(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of any output as a share of its largest value; infinite where shapes differ."""
    return max((_error(one, other) for one, other in zip(found, expected, strict=True)), default=0.0)


def _error(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if found.dtype.kind not in "fiub" or expected.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    one, other = found.astype(np.float64), expected.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(one - other))
    finite = np.abs(other[np.isfinite(other)])
    worst = float(off.max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst / (float(finite.max(initial=0.0)) or 1.0)


__all__ = ["RUNS", "Case", "Outcome", "find_node", "nodes_of", "run_case", "single_node", "worst_error", "write_case"]
