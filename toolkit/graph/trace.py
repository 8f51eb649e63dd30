"""Outputs of every node of a model on a target, by the tensor names of the original model.

All node outputs become graph outputs and the model is run once, on a ResNet50 30 times as fast as extracting submodels.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, ConfigError, EngineError, EngineSpec, InputError, ModelError, TecoInferError, TensorSpec
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.text import one_line
from toolkit.graph.inputs import Shapes, input_shapes, input_specs
from toolkit.graph.nodes import MEMORY, Node, grouped, nodes_of
from toolkit.graph.tensors import Tensors
from toolkit.graph.weights import LightModel, open_marked, source

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from typing_extensions import Self

    from engine import Engine
    from engine.backends import HostSession
    from engine.sdaa import Lowered

_HALF, _FLOAT = 10, 1


class Traced:
    """A model on a target with accessible node outputs; a context manager.

    Attributes:
        path, target, dtype: model file, target and compute precision.
        nodes: of the original model, in order.
        kinds, skipped: as of :class:`toolkit.graph.tensors.Tensors`.
        origin: original tensor -> tensor of the graph that runs; tensors removed by passes or fusion are absent.
        half: original tensors that are stored as float16.
        inputs: arguments of :meth:`run`, in order. outputs: names of the model's outputs.
        model: the graph that runs, without large weights; ``None`` on a target that returns only outputs.
        weights: the large weights by name.
        wide: whether the graph holds float16 values as float32. note: a note on the tracing, or "".
    """

    def __init__(self, path: Path, target: str, dtype: str, original: ModelProto) -> None:
        self.path, self.target, self.dtype = path, target, dtype
        self.nodes = nodes_of(original)
        self._tensors = Tensors(original)
        self.kinds, self.skipped = self._tensors.kinds, self._tensors.skipped
        self.origin: dict[str, str] = {}
        self.half: frozenset[str] = frozenset()
        self.inputs: list[TensorSpec] = []
        self.outputs = [info.name for info in original.graph.output]
        self.model: ModelProto | None = None
        self.weights: dict[str, Array] = {}
        self.wide = False
        self.note = ""

    @property
    def lacks(self) -> str:
        """Default status of a missing tensor."""
        return f"not there on {self.target}: removed by the pass"

    def exposes(self, name: str) -> bool:
        """Return whether an original tensor is accessible on this target."""
        return name in self.origin

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None, keep: bool = False) -> dict[str, Array]:
        """Run the model once; return values by original tensor name, float16 storage as rounded float32 arrays.

        Args:
            inputs: one array per input, in order; cast to the dtype of the target.
            only: original tensors to return, to save memory; ``None`` returns all.
            keep: keep what was opened for these tensors, as for all, until others are asked for.

        Raise InputError if the inputs do not fit, ModelError or EngineError if the model cannot be loaded or run.
        """
        raise NotImplementedError

    def groups(self, inputs: Sequence[Array], limit: int = MEMORY) -> list[list[Node]]:
        """Split the nodes into groups whose tensors take at most ``limit`` bytes, for :meth:`run` with ``only``."""
        return list(grouped(self.nodes, self.sizes(inputs), limit))

    def sizes(self, inputs: Sequence[Array]) -> dict[str, int]:
        """Return the bytes of every tensor of known shape, for these inputs."""
        known: dict[str, int] = {}
        for spec, array in zip(self.inputs, inputs, strict=True):
            for dim, size in zip(self._tensors.dims.get(spec.name, ()), array.shape, strict=False):
                if isinstance(dim, str):
                    known[dim] = size
        return self._tensors.sizes(known)

    def close(self) -> None:
        """Free the model."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def feed(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the inputs in the dtypes of the target; raise InputError if their number, shape or kind is wrong."""
        if len(inputs) != len(self.inputs):
            names = ", ".join(spec.name for spec in self.inputs)
            raise InputError(f"{self.path}: got {len(inputs)} inputs, the model takes {len(self.inputs)}: {names}")
        return [fitted(np.asarray(array), spec) for array, spec in zip(inputs, self.inputs, strict=True)]


def fitted(array: Array, spec: TensorSpec) -> Array:
    """Return an array in the dtype of an input; raise InputError if its shape or kind does not fit the input."""
    want = spec.shape
    if len(want) != array.ndim or any(d not in (None, n) for d, n in zip(want, array.shape, strict=True)):
        text = ", ".join("N" if d is None else str(d) for d in want)
        raise InputError(f"input {spec.name!r} has shape {list(array.shape)}, the model takes [{text}]")
    if array.dtype == spec.dtype:
        return array
    if array.dtype.kind != spec.dtype.kind and not (array.dtype.kind in "iub" and spec.dtype.kind in "iub"):
        raise InputError(f"input {spec.name!r} has dtype {array.dtype}, the model takes {spec.dtype}; convert it")
    with np.errstate(over="ignore"):
        return array.astype(spec.dtype)


class _GraphTraced(Traced):
    """Model run by ONNX Runtime, as the baseline or with the card's storage precision."""

    _session: HostSession | None = None  # of the tensors in ``_names``
    _names: Collection[str] = ()
    _held: LightModel | None = None

    def take(self, model: ModelProto, origin: dict[str, str], held: LightModel) -> None:
        """Set the graph that runs, made from ``held``, and its original tensors."""
        from engine.sdaa import resolved

        self.model, self.origin = model, origin
        self._held = held  # keeps it in the cache of source()
        self.weights = resolved(model, held.weights)
        del model.graph.output[:]  # set by mark(); some may not be arrays
        self.inputs = input_specs(model)

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None, keep: bool = False) -> dict[str, Array]:
        feed = self.feed(inputs)
        names = [name for name in self.origin if only is None or name in only]
        if not names:
            return {}
        if self._session is not None and self._names == names:
            return dict(zip(names, self._session.run(feed), strict=True))
        if only is not None and not keep:
            return dict(zip(names, self._open(names).run(feed), strict=True))
        self._session = None  # before another one takes its memory
        self._session, self._names = self._open(names), names
        return dict(zip(names, self._session.run(feed), strict=True))

    def _open(self, names: Iterable[str]) -> HostSession:
        assert self.model is not None  # noqa: S101 - set by take()
        mark(self.model.graph, [self.origin[name] for name in names])
        try:
            return open_marked(self.model, self.weights)
        except ModelError as error:
            raise ModelError(f"{self.path}: with its node outputs marked: {error}") from error

    def close(self) -> None:
        self._session = self.model = self._held = None
        self.weights = {}


def mark(graph: GraphProto, names: Iterable[str]) -> None:
    """Set the outputs of a graph, without types, which the runtime infers."""
    from onnx import ValueInfoProto

    del graph.output[:]
    graph.output.extend(ValueInfoProto(name=name) for name in names)


class _OutputsTraced(Traced):
    """Model on an engine that returns only the model's outputs."""

    _engine: Engine

    def start(self, engine: Engine) -> None:
        """Set the engine."""
        self._engine, self.inputs = engine, engine.inputs
        self.origin = {name: name for name in self.outputs}
        self.half = frozenset(
            tensor.name
            for tensor in engine.outputs
            if tensor.dtype == np.float16 or (tensor.dtype.kind == "f" and self.dtype == "float16")
        )

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None, keep: bool = False) -> dict[str, Array]:
        try:
            found = self._engine(self.feed(inputs))
        except TecoInferError:
            raise
        except Exception as error:  # a third party's engine may fail in any way
            reason = one_line(error) or "no reason given"
            raise EngineError(f"target {self.target!r} failed: {type(error).__name__}: {reason}") from error
        values = [found] if isinstance(found, np.ndarray) else found
        if len(values) != len(self.outputs):
            names = ", ".join(self.outputs)
            raise EngineError(
                f"target {self.target!r} returned {plural(len(values), 'array')} for "
                f"{plural(len(self.outputs), 'output')} ({names}); infer() must return all, in the model's order"
            )
        named = dict(zip(self.outputs, map(np.asarray, values), strict=True))
        return {name: value for name, value in named.items() if only is None or name in only}

    def close(self) -> None:
        self._engine.release()


class _MarkedTraced(Traced):
    """Model on an engine that opens a copy of the file in which node outputs are outputs of the model."""

    _engine: Engine | None = None
    _names: Collection[str] = ()

    def start(self, held: LightModel, spec: EngineSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Set the model and how it is opened."""
        self._held, self._spec = held, replace(spec, input_size=tuple(shapes.values()))
        self.inputs = input_specs(held.model)
        written = {name for node in held.model.graph.node for name in node.output}
        self.origin = {name: name for name in self.kinds if name in written and name not in self.skipped}
        self.half = _of_kinds(self, _FLOAT, _HALF) if self.dtype == "float16" else _of_kinds(self, _HALF)

    def run(self, inputs: Sequence[Array], only: Collection[str] | None = None, keep: bool = False) -> dict[str, Array]:
        names = [name for name in self.origin if only is None or name in only]
        if not names:
            return {}
        if self._engine is None or list(self._names) != names:
            self.close()
            self._engine, self._names = self._open(names), names
        found = self._engine([fitted(a, spec) for a, spec in zip(inputs, self._engine.inputs, strict=True)])
        return dict(zip(names, [found] if isinstance(found, np.ndarray) else found, strict=True))

    def _open(self, names: Sequence[str]) -> Engine:
        from onnx import helper

        from engine import open_engine
        from engine.onnx import save_model

        model = self._held.whole()
        mark(model.graph, names)
        for info in model.graph.output:
            info.type.CopyFrom(helper.make_tensor_type_proto(self.kinds[info.name], None))
        with tempfile.TemporaryDirectory(prefix="teco-") as folder:
            path = Path(folder) / "marked.onnx"
            save_model(model, path)
            try:
                return open_engine(self.target, replace(self._spec, ckpt=path))
            except ModelError as error:
                text = str(error).replace(str(path), f"{self.path} with its node outputs marked")
                raise ModelError(text) from error

    def close(self) -> None:
        if self._engine is not None:
            self._engine.release()
        self._engine = None


def traced(
    path: Path,
    target: str,
    *,
    dtype: str | None = None,
    pass_path: Path | None = None,
    batch: int = 1,
    shapes: Shapes | None = None,
    only: Collection[str] | None = None,
) -> Traced:
    """Open a model with accessible node outputs.

    ``onnx`` runs the unchanged model, or its float16 form; ``sdaa`` runs it with the card's storage precision on one
    SPA, after the passes; ``tvm`` compiles a copy with more outputs. Other targets, and vendors' engines with these
    names, return only the model's outputs, which ``note`` of the result reports.

    Args:
        path: the ONNX file. target: name of the target. dtype: precision; ``None`` takes the target's own.
        pass_path: pass file, used on ``sdaa``.
        batch: size of a dynamic batch (``sdaa`` uses one fixed batch).
        shapes: shapes by input name, for other dynamic dimensions. only: original tensors; ``None`` takes all.

    Raises:
        ModelError, PassError, ConfigError, TargetError: as when the engine is opened.
    """
    from engine import engine_class

    if dtype == "int8":
        raise ConfigError(
            f"{path}: int8 needs a calibration data set, which this tool does not read; "
            "run example_valid.py --dtype int8 --calib N, which compares it with float32"
        )
    engine = engine_class(target)
    spec = EngineSpec(path, batch_size=batch, dtype=dtype, pass_path=pass_path, divided=False)
    held = source(path)
    declared = vars(engine).get("graph")  # not inherited: a subclass of a vendor may run another graph
    make = _GRAPHS.get(declared) if isinstance(declared, str) else None
    if declared == "marked":
        return _marked(path, target, spec, held, shapes)
    if make is None:
        return _outputs_only(path, target, spec, held.model, shapes)
    found = _GraphTraced(path, target, dtype or engine.default_dtype, held.model)
    make(found, held, spec, shapes)
    if only is not None:
        found.origin = {name: now for name, now in found.origin.items() if name in only}
    return found


def _from_file(found: _GraphTraced, held: LightModel, spec: EngineSpec, shapes: Shapes | None) -> None:
    """Take the graph of the file, or its float16 form, as the baseline engine does."""
    from onnx import ModelProto

    from engine.onnx import graph_inputs, to_float16

    floats = [info.type.tensor_type.elem_type for info in graph_inputs(held.model)]
    if spec.dtype == "float16" and _FLOAT in floats:
        original = to_float16(held.whole())
        found.half = _of_kinds(found, _FLOAT, _HALF)
    else:
        original = ModelProto()
        original.CopyFrom(held.model)
        found.half = _of_kinds(found, _HALF)
        found.dtype = "float16" if _HALF in floats else "float32"  # as the engine does
    found.take(original, _there(found, original), held)


def _lowered(found: _GraphTraced, held: LightModel, spec: EngineSpec, shapes: Shapes | None) -> None:
    """Lower the model as the engine of the simulated card does."""
    from engine.passes import PassOptions
    from engine.sdaa import lowered

    options = PassOptions.load(spec.pass_path)
    original = held.whole() if options.use_passes else held.model
    full = input_shapes(original, spec.batch_size, shapes)
    made = lowered(original, options, full, float16=found.dtype == "float16", batch=spec.batch_size)
    found.wide = options.need_convert
    if made.half:
        _take_rounded(found, made, held)
        return
    found.half = frozenset() if found.wide else _of_kinds(found, _HALF)
    found.take(made.stored, _there(found, made.model), held)


def _take_rounded(found: _GraphTraced, made: Lowered, held: LightModel) -> None:
    """Take a graph in float16 storage, with tensors as stored on the card; tensors inside a kernel are absent."""
    from engine.sdaa import inner_tensors

    keeps = made.keeps
    inner = inner_tensors(made.model.graph, keeps) - set(found.outputs)
    kept = _kept(made.model, keeps)
    now = {name for node in made.stored.graph.node for name in node.output}
    returned = {info.name for info in made.stored.graph.output if info.type.tensor_type.elem_type == _HALF}
    fed = {info.name for info in made.stored.graph.input if info.type.tensor_type.elem_type == _FLOAT}
    found.half = (_of_kinds(found, _FLOAT, _HALF) - kept - fed) | returned
    forms = {name: _form(name, now, kept, found.outputs) for name in _there(found, made.model) if name not in inner}
    found.take(made.stored, forms, held)


def _of_kinds(found: Traced, *kinds: int) -> frozenset[str]:
    return frozenset(name for name, kind in found.kinds.items() if kind in kinds)


def _there(found: _GraphTraced, model: ModelProto) -> dict[str, str]:
    """Return the original tensors that nodes of the graph write, under the same names."""
    written = {name for node in model.graph.node for name in node.output}
    return {name: name for name in found.kinds if name in written}


def _kept(model: ModelProto, keeps: Callable[[NodeProto], bool]) -> set[str]:
    """Return the outputs of float32 nodes, constants, and nodes with bodies (If, Loop, Scan)."""
    from engine.onnx import subgraphs

    return {
        name
        for node in model.graph.node
        if keeps(node) or node.op_type == "Constant" or any(True for _ in subgraphs(node))
        for name in node.output
    }


def _form(name: str, now: Collection[str], kept: Collection[str], outputs: Collection[str]) -> str:
    """Return the tensor of the rounded graph with the value as stored on the card."""
    rounded = f"{name}:rounded"
    return rounded if rounded in now and name not in kept and name not in outputs else name


_GRAPHS = {"file": _from_file, "lowered": _lowered}
""":attr:`engine.base.Engine.graph` of an engine class -> function that makes the graph."""


def _marked(path: Path, target: str, spec: EngineSpec, held: LightModel, shapes: Shapes | None) -> _MarkedTraced:
    from engine import engine_class

    found = _MarkedTraced(path, target, spec.dtype or engine_class(target).default_dtype, held.model)
    found.start(held, spec, input_shapes(held.model, spec.batch_size, shapes))
    return found


def _outputs_only(
    path: Path, target: str, spec: EngineSpec, original: ModelProto, shapes: Shapes | None
) -> _OutputsTraced:
    from engine import open_engine

    size = tuple(input_shapes(original, spec.batch_size, shapes).values())
    engine = open_engine(target, replace(spec, input_size=size))
    found = _OutputsTraced(path, target, engine.dtype, original)
    found.start(engine)
    found.note = f"target {target!r} does not expose intermediate tensors; only the model's outputs are available"
    return found
