"""One node cut out of a model, with its inputs and the baseline's outputs: a test for whoever owns the operator."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, ConfigError, DataError, EngineError, EngineSpec, ModelError, engine_class, open_engine
from toolkit.arguments import did_you_mean
from toolkit.graph.inputs import Shapes
from toolkit.graph.trace import Traced, load_named, nodes_of, traced

if TYPE_CHECKING:
    from typing import TypeAlias

    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

    Run: TypeAlias = "tuple[str, str, float]"
    Scope: TypeAlias = "dict[str, ValueInfoProto | TensorProto]"

TARGETS = ("onnx", "sdaa")
"""Whose engines a case runs on where nobody says: in float32, and in the precision that the target takes by itself."""

TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2, "int8": 1e-1}
"""Largest error a case tolerates, as a share of the largest value of an output, by precision."""

LIMIT = 2**30
"""Bytes that a case may hold: something to send."""

_TEST = Path(__file__).resolve().parent / "ops" / "optest.py.tmpl"
_MODEL, _DATA = "model.onnx", "data.npz"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went on one engine.

    Attributes:
        target, dtype, tolerance: an entry of the case's ``runs``.
        error: largest difference to the baseline as a share of its largest value; ``None`` where it did not run.
        reason: why it did not run, or that no engine can pass in this precision, else "".
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
class NodeTest:
    """A test case on disk.

    Attributes:
        folder: holds the files. node, op: which node. test: the pytest file.
        inputs, outputs: what the node's model takes, and the baseline's answer, by name.
        runs: target, precision and tolerance of everything it runs on.
    """

    folder: Path
    node: str
    op: str
    test: Path
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    runs: Sequence[Run]


def find_node(model: ModelProto, wanted: str, path: Path) -> NodeProto:
    """Return the node meant by a name, a position such as ``12``, or the name of a tensor it writes.

    Args:
        model: with unique node names (:func:`toolkit.graph.trace.load_named`). wanted: the word. path: for messages.

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
    same = [node.name for node in nodes if wanted and re.fullmatch(rf"{re.escape(wanted)}#\d+_*", node.name)]
    if same:
        raise ConfigError(f"{path}: {len(same)} nodes are called {wanted!r}; pass one of: {', '.join(same)}")
    holder = _holder(model, wanted)
    if holder:
        raise ConfigError(
            f"{path}: {wanted!r} lies in the body of {holder!r}, whose inner values cannot be seen; pass {holder!r}"
        )
    near = did_you_mean(wanted, [name for node in nodes for name in (node.name, *node.output)])
    raise ConfigError(
        f"{path} has no node {wanted!r};{near} pass a node's name, a tensor it writes, or 0 to {len(nodes) - 1}"
    )


def _holder(model: ModelProto, wanted: str) -> str:
    """Return the node of the main graph in whose body there is a node or tensor of a name, or ""."""
    from toolkit.ops.needs import placed_nodes

    for place, node, _ in placed_nodes(model.graph):
        if wanted and wanted in (place, place.rpartition("/")[2], *node.output):
            for holder in model.graph.node:
                if place.startswith(f"{holder.name}/"):
                    return str(holder.name)
    return ""


def single_node(
    model: ModelProto, node: NodeProto, values: Mapping[str, Array] | None = None, scope: Scope | None = None
) -> ModelProto:
    """Return a model of one node; weights come along, everything else it reads is an input.

    Args:
        model: where the node is; types are read off it, so infer shapes first where ``values`` does not hold all.
        node: one of its nodes. values: known arrays by tensor name; they give inputs and outputs their exact shape.
        scope: what is known of the tensors around a node that lies in a body; ``None`` takes the main graph's.

    Raises:
        ModelError: the type of something the node reads is not known.
    """
    from onnx import ModelProto, TensorProto, helper

    from engine.onnx import used_names

    known = scope_of(model.graph) if scope is None else scope
    read = list(dict.fromkeys(used_names(node)))
    held = [tensor for tensor in (known.get(name) for name in read) if isinstance(tensor, TensorProto)]
    weights = {tensor.name for tensor in held}
    inputs = [_input(name, known, values or {}, node) for name in read if name not in weights]
    outputs = [_output(name, values or {}) for name in node.output if name]
    graph = helper.make_graph([node], node.name or node.op_type, inputs, outputs, held)
    cut = ModelProto()
    cut.CopyFrom(helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4)))
    return cut


def scope_of(graph: GraphProto, outer: Scope | None = None) -> Scope:
    """Return what is known of a graph's tensors: weights and constants themselves, of all others the type.

    Args:
        graph: with inferred shapes. outer: the scope of the graph around a body.
    """
    from onnx import TensorProto

    scope: Scope = {**(outer or {})}
    scope |= {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    scope |= {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensor = TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                scope[tensor.name] = tensor
    return scope


def _input(name: str, scope: Scope, values: Mapping[str, Array], node: NodeProto) -> ValueInfoProto:
    from onnx import TensorProto, helper

    if name in values:
        kind = helper.np_dtype_to_tensor_dtype(values[name].dtype)
        return helper.make_tensor_value_info(name, kind, values[name].shape)
    found = scope.get(name)
    if found is None or isinstance(found, TensorProto) or found.type.WhichOneof("value") is None:
        raise ModelError(f"node {node.name!r}: the type of its input {name!r} is not known; export the model again")
    return found


def _output(name: str, values: Mapping[str, Array]) -> ValueInfoProto:
    from onnx import ValueInfoProto, helper

    if name not in values:
        return ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)


def typed(model: ModelProto) -> ModelProto:
    """Return a model whose outputs have the types that follow from its inputs.

    Raises:
        ModelError: onnx has no schema for the node's operator.
    """
    from engine.onnx import infer_shapes

    inferred = infer_shapes(model)
    if any(info.type.WhichOneof("value") is None for info in inferred.graph.output):
        op = model.graph.node[0]
        raise ModelError(
            f"operator {op.domain or 'ai.onnx'}::{op.op_type} is unknown to onnx: its outputs have no type"
        )
    return inferred


def write_case(
    path: Path,
    wanted: str,
    out: Path,
    inputs: Sequence[Array],
    *,
    batch: int = 1,
    shapes: Shapes | None = None,
    targets: Sequence[str] = TARGETS,
) -> NodeTest:
    """Cut a node out and write ``model.onnx``, ``data.npz`` and a pytest file that needs nothing but the zoo.

    Args:
        path: the ONNX file. wanted: the node (:func:`find_node`). out: folder to write, made where it is missing.
        inputs: of the whole model; it is run once on the baseline, float32, to see what reaches the node.
        batch, shapes: as for :func:`toolkit.graph.trace.traced`. targets: whose engines it is to run on.

    Raises:
        ConfigError: there is no such node. TargetError: there is no such target.
        ModelError: it reads or writes something that is no array of numbers, too much of it, or the baseline cannot run
            the model.
        DataError: the folder cannot be written.
    """
    model = load_named(path)
    node = find_node(model, wanted, path)
    values = _values(path, model, node, inputs, batch, shapes)
    cut = single_node(model, node, values)
    feed = {info.name: values[info.name] for info in cut.graph.input}
    answer = {info.name: values[info.name] for info in cut.graph.output}
    arrays = {f"in{i}": array for i, array in enumerate(feed.values())}
    arrays |= {f"out{i}": array for i, array in enumerate(answer.values())}
    runs = runs_of(targets, arrays.values())
    name = f"test_{re.sub(r'[^A-Za-z0-9]+', '_', node.name).strip('_').lower() or 'node'}.py"
    test = out / name
    other = next((file.name for file in sorted(out.glob("test_*.py")) if file.name != name), None)
    if other is not None:
        raise DataError(f"{out} holds another case ({other}); choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / _MODEL).write_bytes(cut.SerializeToString())
        np.savez(out / _DATA, **arrays)  # type: ignore[arg-type]
        test.write_text(_source(path, node, runs), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror}; choose another --out") from error
    return NodeTest(out, node.name, node.op_type, test, feed, answer, runs)


def _values(
    path: Path, model: ModelProto, node: NodeProto, inputs: Sequence[Array], batch: int, shapes: Shapes | None
) -> dict[str, Array]:
    """Return all that the node reads and writes on the baseline."""
    from engine.onnx import used_names

    needed = {*used_names(node), *filter(None, node.output)}
    with traced(path, "onnx", dtype="float32", batch=batch, shapes=shapes, only=needed) as run:
        check_node(node, run)
        sizes = run.sizes(inputs)
        total = sum(sizes.get(name, 0) for name in needed)
        total += sum(tensor.ByteSize() for tensor in model.graph.initializer if tensor.name in needed)
        if total > LIMIT:
            raise ModelError(
                f"node {node.name!r} reads and writes {total / 2**20:.0f} MiB, a case holds {LIMIT / 2**20:.0f}; "
                "pass a smaller --shape or --batch_size, or cut out another"
            )
        try:
            values = run.run(inputs)
        except (ModelError, EngineError) as error:
            raise type(error)(f"{error}; a case needs the baseline's values") from error
        values |= dict(zip([spec.name for spec in run.inputs], run.feed(inputs), strict=True))
    return values


def check_node(node: NodeProto, run: Traced) -> None:
    """Refuse a node whose values cannot be kept.

    Args:
        node: which one. run: its model on the baseline.

    Raises:
        ModelError: it reads or writes something that is no array of numbers.
    """
    from engine.onnx import used_names

    given = {spec.name: spec.dtype for spec in run.inputs if spec.dtype.kind not in "fiub"}
    odd = run.skipped | {name: "string" if dtype.kind == "O" else dtype.name for name, dtype in given.items()}
    for name in (*used_names(node), *node.output):
        if name in odd:
            raise ModelError(
                f"node {node.name!r} uses {name!r} of type {odd[name]}, no array of numbers; cut out another"
            )


def _source(path: Path, node: NodeProto, runs: Sequence[Run]) -> str:
    def plain(text: str) -> str:
        return re.sub(r'[\\"\r\n\x00-\x1f]', "_", text)

    words = {"op": plain(node.op_type), "node": plain(node.name), "model": plain(path.name), "runs": repr(runs)}
    return Template(_TEST.read_text(encoding="utf-8")).substitute(words)


def runs_of(targets: Iterable[str], arrays: Iterable[Array] = ()) -> list[Run]:
    """Return target, precision and tolerance of everything a case runs on.

    Args:
        targets: by name. arrays: the case's values; where they hold float16's rounding, all tolerate that.

    Raises:
        TargetError: there is no such target, or it cannot be loaded.
    """
    least = TOLERANCES["float16"] if any(array.dtype == np.float16 for array in arrays) else 0.0
    runs = []
    for target in dict.fromkeys(targets):
        engine = engine_class(target)
        for dtype in dict.fromkeys(("float32", engine.default_dtype)):
            if dtype in engine.dtypes:
                runs.append((target, dtype, max(TOLERANCES[dtype], least)))
    return runs


def run_case(case: NodeTest) -> list[Outcome]:
    """Run a case on its engines as its test does; an engine that refuses is an outcome too."""
    return [_outcome(case, target, dtype, tolerance) for target, dtype, tolerance in case.runs]


def _outcome(case: NodeTest, target: str, dtype: str, tolerance: float) -> Outcome:
    from engine import TecoInferError

    spec = EngineSpec(case.folder / _MODEL, dtype=dtype, divided=False)
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore")  # as in the test: inputs are cast, and what the card's cost model says
            with open_engine(target, spec) as engine:
                found = engine(list(case.inputs.values()))
    except TecoInferError as error:
        return Outcome(target, dtype, tolerance, None, str(error))
    results = [found] if isinstance(found, np.ndarray) else found
    outcome = Outcome(target, dtype, tolerance, worst_error(results, list(case.outputs.values())))
    if outcome.passed or dtype != "float16":
        return outcome
    return replace(outcome, reason=_precision_alone(case, tolerance))


def _precision_alone(case: NodeTest, tolerance: float) -> str:
    """Say whether the baseline itself fails once what goes in and comes out is rounded to float16, "" where not."""
    import onnx
    from onnx import numpy_helper

    from engine import HostSession

    def rounded(array: Array) -> Array:
        return array.astype(np.float16).astype(array.dtype) if array.dtype.kind == "f" else array

    model = onnx.load(case.folder / _MODEL)
    with np.errstate(over="ignore"):
        for weight in model.graph.initializer:
            weight.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(weight)), weight.name))
        found = HostSession(model, threads=1).run([rounded(array) for array in case.inputs.values()])
        error = worst_error([rounded(array) for array in found], list(case.outputs.values()))
    if error <= tolerance:
        return ""
    return f"float16 itself: so does the baseline ({error:.2g}) once its inputs, weights and outputs are rounded to it"


def worst_error(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of any output as a share of its largest value.

    It is infinite where shapes differ, and where whole numbers do.
    """
    return max((_error(one, other) for one, other in zip(found, expected, strict=True)), default=0.0)


def _error(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f":  # positions and classes: nearly is wrong
        return 0.0 if np.array_equal(found, expected) else float("inf")
    one, other = found.astype(np.float64), expected.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(one - other))
    finite = np.abs(other[np.isfinite(other)])
    worst = float(off.max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst / (float(finite.max(initial=0.0)) or 1.0)


__all__ = [
    "LIMIT",
    "TARGETS",
    "NodeTest",
    "Outcome",
    "check_node",
    "find_node",
    "nodes_of",
    "run_case",
    "runs_of",
    "single_node",
    "worst_error",
    "write_case",
]
