"""The one door to ONNX protobufs: load, check, bind shapes, sort, float16, save, and a plain view of the graph.

Nothing here imports a runtime. Opening a model on target ``onnx`` does not come through here unless something is wrong
with the file or float16 is asked of a float32 model, because importing ``onnx`` costs more than opening a small model.
"""

from __future__ import annotations

import graphlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from engine.errors import ModelError
from engine.host.files import hash_files
from engine.signature import NO_TENSOR, Dim, TensorSpec, batch_axes, sizes_of, symbols_of

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
_SMALL = 1024
"""Elements up to which a float constant may be a parameter that shapes follow from (scales of a Resize)."""

_UNTYPED = ("", "GroupNormalization")  # onnx infers nothing of its output, which is as its first input
MIN_OPSET = 7
"""Oldest opset of the default domain that ONNX Runtime documents as supported."""

_HALF = TensorProto.FLOAT16


# --------------------------------------------------------------------------------------------------------------- load


def load_model(path: Path) -> ModelProto:
    """Load and check an ONNX file, external data included, with its nodes in topological order.

    Raises:
        ModelError: missing, empty, cut short or not ONNX; external data missing; opset or IR version out of range;
            nodes that form a cycle.
    """
    model = _parse(path)
    _check_versions(model, path)
    _load_external(model, path)
    return sort_nodes(model, path)


def _parse(path: Path) -> ModelProto:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelError(f"model file {path} {what}; pass the path of an .onnx file (export_onnx.py writes one)")
    size = path.stat().st_size
    if size == 0:
        raise ModelError(f"model file {path} is empty (0 bytes); export it again")
    try:
        # Named formats are for text files; a model is protobuf whatever its file is called.
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"model file {path} ({size} bytes) is not ONNX or is cut short; export it again") from error
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}; check its permissions") from error
    if not model.graph.output or not model.opset_import:
        raise ModelError(f"model file {path} ({size} bytes) holds no ONNX graph; export it again")
    return model


def _check_versions(model: ModelProto, path: Path) -> None:
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{path}: IR version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that onnx "
            f"{onnx.__version__} reads; upgrade onnx and onnxruntime, or export with an older exporter"
        )
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not MIN_OPSET <= opset.version <= newest:
            where = f"{MIN_OPSET} to {newest}, the range this zoo runs (onnx {onnx.__version__})"
            fix = "export with opset_version=17, use onnx.version_converter, or upgrade onnx and onnxruntime"
            raise ModelError(f"{path}: opset {opset.version} is outside {where}; {fix}")


def _load_external(model: ModelProto, path: Path) -> None:
    for tensor in (t for t in tensors(model.graph) if t.data_location == TensorProto.EXTERNAL):
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if not (path.parent / location).is_file():
            raise ModelError(
                f"{path}: weights {tensor.name!r} lie in external file {location!r}, which is not beside it; copy both"
            )
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        fix = "copy the file itself beside the model, or export it again"
        raise ModelError(f"{path}: external data cannot be read: {_one_line(error)}; {fix}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def sort_nodes(model: ModelProto, path: Path | str = "model") -> ModelProto:
    """Put the nodes of the main graph into topological order, in place; one that is in order already is left alone.

    Raises:
        ModelError: the nodes form a cycle.
    """
    nodes = list(model.graph.node)
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [{producer[name] for name in used_names(node) if name in producer} for node in nodes]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return model
    try:
        order = list(graphlib.TopologicalSorter({i: sorted(before) for i, before in enumerate(needs)}).static_order())
    except graphlib.CycleError as error:
        names = [nodes[i].name or nodes[i].op_type for i in error.args[1]]
        raise ModelError(f"{path}: the graph has a cycle: {' -> '.join(names)}; export it again") from error
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in order)
    return model


# --------------------------------------------------------------------------------------------------------------- view


def subgraphs(node: NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs held by a node's attributes (bodies of If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def used_names(node: NodeProto) -> Iterator[str]:
    """Yield every tensor name a node reads, those its subgraphs capture from outside included."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        own = _own_names(graph)
        for inner in graph.node:
            yield from (name for name in used_names(inner) if name not in own)


def _own_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names a body defines itself."""
    own = {named.name for named in (*graph.initializer, *graph.input)}
    return own | {name for inner in graph.node for name in inner.output}


def rename_inputs(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node reads, also inside the bodies of If, Loop and Scan except where a body defines the name."""
    for i, name in enumerate(node.input):
        node.input[i] = names.get(name, name)
    for graph in subgraphs(node):
        own = _own_names(graph)
        outer = {old: new for old, new in names.items() if old not in own}
        for inner in graph.node:
            rename_inputs(inner, outer)


def tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield every constant of a graph: initializers and tensor attributes, subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
        for inner in subgraphs(node):
            yield from tensors(inner)


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs a caller feeds (IR 3 models list initializers among the inputs; those are left out)."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def dims(info: ValueInfoProto) -> list[Dim]:
    """Return a declared shape: numbers, symbols, or ``None`` for a dynamic dimension without one.

    0 is a dimension without elements, as ONNX and ONNX Runtime have it; a negative number counts as dynamic.
    """
    return [d.dim_value if _is_fixed(d) else (d.dim_param or None) for d in info.type.tensor_type.shape.dim]


def _is_fixed(dim: onnx.TensorShapeProto.Dimension) -> bool:
    return dim.HasField("dim_value") and dim.dim_value >= 0


def signature(model: ModelProto) -> tuple[list[TensorSpec], list[TensorSpec], list[list[Dim]]]:
    """Return inputs, outputs, and the inputs' declared shapes with symbols; the batch is a guess by the shapes.

    Raises:
        ModelError: an input or output is not a tensor, or has a dtype numpy lacks.
    """
    shapes = [dims(info) for info in graph_inputs(model)]
    inputs = [_tensor_spec(info, axis) for info, axis in zip(graph_inputs(model), batch_axes(shapes), strict=True)]
    return inputs, [_tensor_spec(info, 0) for info in model.graph.output], shapes


def _tensor_spec(info: ValueInfoProto, batch_axis: int | None) -> TensorSpec:
    form, kind = info.type.WhichOneof("value") or "tensor_type", info.type.tensor_type.elem_type
    if form != "tensor_type":
        raise ModelError(f"{info.name!r} is no tensor but {form.removesuffix('_type')}; {NO_TENSOR}")
    if kind in (TensorProto.UNDEFINED, TensorProto.BFLOAT16):
        raise ModelError(f"{info.name!r} is not a tensor that numpy arrays can hold; export it as float32 or float16")
    declared = dims(info)
    shape, dtype = sizes_of(declared), np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    return TensorSpec(info.name, dtype, shape, batch_axis, symbols_of(declared))


def metadata(model: ModelProto) -> dict[str, str]:
    """Return the model's ``metadata_props``."""
    return {entry.key: entry.value for entry in model.metadata_props}


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node with what a cost model or a report needs: shapes and bytes of everything it reads and writes."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int | None, ...]]
    bytes: dict[str, int | None]


def view(model: ModelProto) -> list[NodeView]:
    """Return the main graph's nodes in order with inferred shapes and sizes in bytes (``None`` where not known)."""
    inferred = infer_shapes(model)
    shapes: dict[str, tuple[int | None, ...]] = {}
    sizes: dict[str, int | None] = {}
    for tensor in inferred.graph.initializer:
        shapes[tensor.name] = tuple(tensor.dims)
        sizes[tensor.name] = _bytes(tuple(tensor.dims), tensor.data_type)
    for info in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        shape = tuple(d if isinstance(d, int) else None for d in dims(info))
        shapes[info.name] = shape
        sizes[info.name] = _bytes(shape, info.type.tensor_type.elem_type)
    return [_node_view(i, node, shapes, sizes) for i, node in enumerate(inferred.graph.node)]


def _node_view(
    i: int, node: NodeProto, shapes: dict[str, tuple[int | None, ...]], sizes: dict[str, int | None]
) -> NodeView:
    names = {*used_names(node), *node.output}
    return NodeView(
        node.name or f"{node.op_type}_{i}",
        node.op_type,
        tuple(node.input),
        tuple(node.output),
        {name: shapes[name] for name in sorted(names) if name in shapes},
        {name: sizes[name] for name in sorted(names) if name in sizes},
    )


def _bytes(shape: tuple[int | None, ...], kind: int) -> int | None:
    if kind == TensorProto.UNDEFINED or any(d is None for d in shape):
        return None
    count = 1
    for d in shape:
        count *= d or 0
    return count * int(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize)


def infer_shapes(model: ModelProto) -> ModelProto:
    """Return a copy with inferred shapes and dtypes; the contents of large weights do not go through the inference."""
    light = ModelProto()
    light.CopyFrom(model)
    for tensor in light.graph.initializer:
        if tensor.data_type in _FLOATS and prod(tensor.dims) > _SMALL:
            for values in ("raw_data", "float_data", "int32_data", "double_data"):
                tensor.ClearField(values)
    untyped = [i for i, node in enumerate(light.graph.node) if (node.domain, node.op_type) == _UNTYPED]
    for node in (light.graph.node[i] for i in untyped):
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    for i in untyped:
        inferred.graph.node[i].CopyFrom(model.graph.node[i])
    del inferred.graph.initializer[:]
    inferred.graph.initializer.extend(model.graph.initializer)
    return inferred


# ------------------------------------------------------------------------------------------------------- bind and save


def bind_shapes(model: ModelProto, shapes: dict[str, Sequence[int]]) -> ModelProto:
    """Return a copy whose inputs have exactly these shapes, with every other shape inferred anew.

    Raises:
        ModelError: the model cannot have these shapes.
    """
    bound = ModelProto()
    bound.CopyFrom(model)
    given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    before = [dims(info) for info in graph_inputs(bound)]
    for info in graph_inputs(bound):
        have = info.type.tensor_type.shape.dim
        if len(have) != len(shapes.get(info.name, ())):
            raise ModelError(f"the model cannot take inputs of shape {given}: {info.name!r} has {len(have)} dimensions")
        for dim, size in zip(have, shapes[info.name], strict=True):
            dim.dim_value = size
    changed = before != [dims(info) for info in graph_inputs(bound)]
    known = {info.name: info.type for info in graph_inputs(bound)}
    weights = {tensor.name for tensor in bound.graph.initializer}
    for info in bound.graph.output:  # they follow from the inputs; a stale size or symbol would contradict them
        if info.name in known:
            info.type.CopyFrom(known[info.name])
            continue
        for dim in info.type.tensor_type.shape.dim:
            if (changed and info.name not in weights) or not _is_fixed(dim):
                dim.Clear()
    del bound.graph.value_info[:]
    try:
        return _fill_outputs(infer_shapes(bound))
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"the model cannot take inputs of shape {given}: {_one_line(error)}") from error


def _fill_outputs(model: ModelProto) -> ModelProto:
    """Give an output listed twice the shape inferred for one of them."""
    known = {info.name: info for info in model.graph.output if None not in dims(info)}
    for info in model.graph.output:
        if info.name in known and None in dims(info):
            info.type.CopyFrom(known[info.name].type)
    return model


def save_model(model: ModelProto, path: Path) -> None:
    """Write a model atomically: on any failure the old file is left as it was. Past 2 GiB weights go to ``.data``."""
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".onnx", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        if model.ByteSize() < 2**31 - 2**24:
            onnx.save(model, str(temporary))
        else:
            onnx.save(model, str(temporary), save_as_external_data=True, location=f"{path.name}.data")
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def external_files(path: Path) -> list[str]:
    """Return the files beside a model that hold weights of it, as the model names them, sorted.

    Raises:
        ModelError: the file is missing or not ONNX.
    """
    named = (e.value for t in tensors(_parse(path).graph) for e in t.external_data if e.key == "location")
    return sorted(set(named))


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a model file and of the external data it names, in hexadecimal."""
    return hash_files(path, *(path.parent / name for name in external_files(path)))


# ------------------------------------------------------------------------------------------------------------- float16


def to_float16(
    model: ModelProto, keep: Callable[[NodeProto], bool] | None = None, keep_inputs: Iterable[str] = ()
) -> ModelProto:
    """Return a plain float16 copy of a float32 model: float16 weights, activations, inputs and outputs.

    Args:
        model: the model; float16 parts stay as they are.
        keep: says which nodes stay float32 (a cast goes around them).
        keep_inputs: graph inputs that keep their dtype.

    Raises:
        ModelError: the conversion failed.
    """
    from onnxconverter_common import float16

    copy = ModelProto()
    copy.CopyFrom(model)
    blocked = []
    for i, node in enumerate(copy.graph.node):
        node.name = node.name or f"{node.op_type}_{i}"
        if keep is not None and keep(node):
            blocked.append(node.name)
        if node.name in blocked or node.op_type in float16.DEFAULT_OP_BLOCK_LIST:
            _own_constants(copy.graph, node)
    try:
        with np.errstate(over="ignore"):
            converted: ModelProto = float16.convert_float_to_float16(
                infer_shapes(copy),  # the library's own inference takes no model over 2 GiB
                # The library's defaults move tiny and huge weights to values of its choice; let them round or overflow.
                min_positive_val=0.0,
                max_finite_val=np.inf,
                node_block_list=blocked,
                check_fp16_ready=False,
                disable_shape_infer=True,
            )
    except (ValueError, RuntimeError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"the model cannot be converted to float16: {_one_line(error)}") from error
    half = {info.name for info in (*converted.graph.value_info, *converted.graph.output) if _kind(info) == _HALF}
    for node in converted.graph.node:
        if half.intersection(node.output):
            _write_half(node)
    # The library can only keep all inputs and outputs, so single inputs are kept here.
    was = {info.name: _kind(info) for info in graph_inputs(model)}
    fed = {info.name: info for info in graph_inputs(converted) if _kind(info) != was[info.name]}
    for name in fed.keys() & set(keep_inputs):
        _keep_input(converted.graph, fed[name])
    return sort_nodes(converted)


def _kind(info: ValueInfoProto) -> int:
    return int(info.type.tensor_type.elem_type)


def _own_constants(graph: onnx.GraphProto, node: NodeProto) -> None:
    """Give a node that stays float32 weights of its own; the library cannot hold one weight in two types."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    read = constants.keys() & set(node.input)  # once each: a node may read a weight twice
    for name in sorted(read):
        own = graph.initializer.add()
        own.CopyFrom(constants[name])
        own.name = f"{name}:{node.name}"
    for i, name in enumerate(node.input):
        node.input[i] = f"{name}:{node.name}" if name in read else name


def _write_half(node: NodeProto) -> None:
    """Make a node that names its own output type write float16, which the library forgets."""
    for attribute in node.attribute:
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = onnx.numpy_helper.from_array(np.asarray(value, np.float16))
            attribute.CopyFrom(helper.make_attribute("value", tensor))
        elif attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = _HALF
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", onnx.numpy_helper.from_array(np.zeros(1, np.float16))))


def _keep_input(graph: onnx.GraphProto, info: ValueInfoProto) -> None:
    """Let a graph input of a converted graph take float32, with a cast behind it."""
    half = f"{info.name}/half"
    info.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        rename_inputs(node, {info.name: half})
    graph.node.insert(0, helper.make_node("Cast", [info.name], [half], f"{half}/cast", to=_HALF))
