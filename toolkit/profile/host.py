"""Profile on the host: ONNX Runtime's times per node over several runs, and the measured roof of the machine."""

from __future__ import annotations

import json
import re
import tempfile
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, EngineSpec, usable_cores
from engine.sdaa import kernels_of
from toolkit.graph.inputs import Shapes, draw
from toolkit.profile.bottlenecks import find_bottlenecks, fusion, kinds_of_shape, one_layout
from toolkit.profile.record import Launch, Profile
from toolkit.profile.sizes import checked_inputs

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.onnx import NodeView

WARMUP = 3

_FUSED = {"FusedConv": "Conv", "NhwcFusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul"}
"""Fused operators of ONNX Runtime -> ONNX operator with the same arithmetic."""

_BYTES = {"float": 4, "float16": 2, "bfloat16": 2, "double": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4}
"""Bytes per element by ONNX Runtime's type names; 1 for others."""

_SUFFIX = "_kernel_time"
_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")

Shape = tuple[int, ...]


class OriginalNode(NamedTuple):
    """A node of the original model with its module, or "", and for each input its shape if it is a weight."""

    name: str
    op_type: str
    module: str
    weights: tuple[Shape | None, ...]


class Roof(NamedTuple):
    """Peak of the machine: operations per second, and bytes per second."""

    flops: float
    bandwidth: float


def measure_roof(seconds: float = 0.1) -> Roof:
    """Measure a float32 matrix product and a copy larger than the caches in numpy; the best within ``seconds``."""
    a, big = np.ones((512, 512), np.float32), np.ones(1 << 23, np.float32)
    out, copy = np.empty_like(a), np.empty_like(big)
    product = _best(lambda: np.matmul(a, a, out=out), seconds / 2)
    copied = _best(lambda: np.copyto(copy, big), seconds / 2)
    return Roof(2 * 512**3 / product, 2 * big.nbytes / copied)


def _best(work: Any, seconds: float) -> float:
    work()
    end, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def profile_host(spec: EngineSpec, shapes: Shapes | None = None, runs: int = 20) -> Profile:
    """Return the profile of one run on ONNX Runtime's CPU provider, as the median over runs.

    Passes are not applied, as on target ``onnx``; optimisations of ONNX Runtime are.
    Raise TecoInferError if the model cannot be read or run.
    """
    from engine.onnx import to_float16
    from toolkit.graph.nodes import load_named

    original = load_named(spec.ckpt)
    model = to_float16(original) if spec.dtype == "float16" else original
    specs = checked_inputs(model, shapes or {})
    feed = draw(model, batch=spec.batch_size, shapes=shapes)
    events, calls = timed(model, feed, runs, spec.ckpt)
    roof, steps = _below_the_roof(per_node(events), sources(original))
    cores = usable_cores()
    notes = [f"measured: median of {runs} runs after {WARMUP}, {cores} cores; roof: numpy, or the fastest step"]
    notes += ["target onnx applies no passes: the pass file was not used"] if spec.pass_path else []
    found = Profile(
        model=spec.ckpt.name,
        target="onnx",
        simulated=False,
        device=f"ONNX Runtime CPU, {cores} cores",
        dtype="float16" if any(one.dtype == np.float16 for one in specs) else "float32",
        batch=feed[0].shape[0] if feed and feed[0].ndim else 1,
        pass_file="",
        inputs={one.name: array.shape for one, array in zip(specs, feed, strict=True)},
        peak_flops=roof.flops,
        bandwidth=roof.bandwidth,
        steps=steps,
        copy_in=0.0,
        copy_out=0.0,
        call=median(calls),
        notes=tuple(notes),
    )
    facts = kinds_of_shape(original, model)
    better = (*one_layout(found, facts), *fusion(found))
    return replace(found, what_if=better, bottlenecks=find_bottlenecks(found, facts))


def _below_the_roof(
    rows: Mapping[str, tuple[dict[str, Any], float]], origin: Mapping[str, OriginalNode]
) -> tuple[Roof, tuple[Launch, ...]]:
    """Return the roof and the steps; a step that is faster than numpy raises the roof."""

    def under(roof: Roof) -> tuple[Launch, ...]:
        return tuple(_step(name, args, seconds, roof, origin) for name, (args, seconds) in rows.items())

    measured = measure_roof()
    fastest = max((step.flops / step.seconds for step in under(measured) if step.seconds > 0), default=0.0)
    roof = measured._replace(flops=max(measured.flops, fastest))
    return roof, under(roof)


def timed(
    model: ModelProto, feed: list[Array], runs: int, source: Path | None = None
) -> tuple[list[list[dict[str, Any]]], list[float]]:
    """Run a model with ONNX Runtime's profiler; return the node events and the seconds of every run after the warm-up.

    Raise ModelError if ONNX Runtime cannot load the model, EngineError if a run failed.
    """
    from engine.backends import HostSession

    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        session = HostSession(model, profile_prefix=Path(folder) / "run", source=source)
        calls = []
        for _ in range(WARMUP + runs):
            start = time.perf_counter()
            session.run(feed)
            calls.append(time.perf_counter() - start)
        events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    return _by_run(events)[WARMUP:], calls[WARMUP:]


def _by_run(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the node events of every run, by their start time."""
    spans = sorted(e["ts"] for e in events if e.get("cat") == "Session" and e.get("name") == "model_run")
    found: list[list[dict[str, Any]]] = [[] for _ in spans]
    for event in events:
        if event.get("cat") == "Node" and event.get("name", "").endswith(_SUFFIX):
            run = bisect_right(spans, event["ts"]) - 1
            if run >= 0:
                found[run].append(event)
    return found


def per_node(runs: list[list[dict[str, Any]]]) -> dict[str, tuple[dict[str, Any], float]]:
    """Return arguments and median seconds by node, in order; iterations of a loop are summed."""
    totals: dict[str, list[float]] = {}
    first: dict[str, dict[str, Any]] = {}
    for events in runs:
        own: dict[str, float] = {}
        for event in events:
            name = event["name"].removesuffix(_SUFFIX)
            first.setdefault(name, event["args"])
            own[name] = own.get(name, 0.0) + event["dur"] * 1e-6
        for name, seconds in own.items():
            totals.setdefault(name, []).append(seconds)
    return {name: (first[name], median(seconds)) for name, seconds in totals.items()}


def sources(model: ModelProto) -> dict[str, OriginalNode]:
    """Return the nodes of a model by name and by output tensor."""
    from toolkit.graph.nodes import module_of

    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    found: dict[str, OriginalNode] = {}
    for node in model.graph.node:
        one = OriginalNode(node.name, node.op_type, module_of(node), tuple(shapes.get(name) for name in node.input))
        found |= dict.fromkeys((*node.output, node.name), one)
    return found


def _step(name: str, args: Mapping[str, Any], seconds: float, roof: Roof, origin: Mapping[str, OriginalNode]) -> Launch:
    op_type = str(args.get("op_name", ""))
    # ONNX Runtime names fused or reordered nodes after their output tensor.
    source = origin.get(_RENAMED.sub("", name), OriginalNode(name, "", "", ()))
    flops, size = work_of(op_type, args, source)
    arithmetic, traffic = flops / roof.flops, size / roof.bandwidth
    best = max(arithmetic, traffic)
    return Launch(
        name=name,
        op_type=op_type,
        nodes=(source.name,),
        module=source.module,
        seconds=seconds,
        flops=flops,
        bytes=size,
        roof=best,
        bound="launch" if seconds > 10 * best and seconds < 2e-5 else "compute" if arithmetic > traffic else "memory",
    )


def work_of(op_type: str, args: Mapping[str, Any], source: OriginalNode) -> tuple[float, int]:
    """Return operations and bytes of a node from the shapes that ONNX Runtime reports; zeros without shapes.

    Shapes of prepacked weights are not reported; they are taken from the original node, or computed from the input and
    output of a product. Without them, no operations are counted.
    """
    from engine.onnx import NodeView

    read, written = (
        [next(iter(entry.items())) for entry in args.get(side, [])]
        for side in ("input_type_shape", "output_type_shape")
    )
    if not read or not written:
        return 0.0, 0
    kind = _FUSED.get(op_type, op_type)
    read = _all_read(kind, read, written, source)
    inputs, outputs = _numbered("in", read), _numbered("out", written)
    sides = inputs | outputs
    shapes: dict[str, tuple[int | None, ...]] = {name: tuple(shape) for name, (_, shape) in sides.items()}
    sizes = {name: int(np.prod(shape)) * _BYTES.get(kind, 1) for name, (kind, shape) in sides.items()}
    return _priced(NodeView("", kind, tuple(inputs), tuple(outputs), shapes, {**sizes}), sum(sizes.values()))


Side = tuple[str, Sequence[int]]  # type and shape of an input or output, as reported by ONNX Runtime's profiler


def _numbered(word: str, sides: Sequence[Side]) -> dict[str, Side]:
    return {f"{word}{i}": side for i, side in enumerate(sides)}


def _all_read(kind: str, read: list[Side], written: list[Side], source: OriginalNode) -> list[Side]:
    """Return the inputs of a node, including weights that were not reported."""
    if kind == source.op_type and len(read) < len(source.weights):
        read = _with_weights(read, source.weights)
    if kind in ("Gemm", "MatMul") and (len(read) < 2 or len(read[1][1]) < 2):
        return [read[0], _second_factor(read[0], written[0]), *read[1:]]
    return read


def _priced(view: NodeView, size: int) -> tuple[float, int]:
    """Return operations and bytes of a node; 0 and ``size`` if the cost model does not support it."""
    try:
        found = kernels_of([view], (), set())
    except (IndexError, KeyError, ValueError):
        return 0.0, size
    return (found[0].flops, found[0].read + found[0].written) if found else (0.0, 0)


def _with_weights(read: list[Side], weights: Sequence[Shape | None]) -> list[Side]:
    """Insert the weights that were not reported, in the node's order."""
    reported, found = list(read), []
    for shape in weights:
        if shape is None or (reported and tuple(reported[0][1]) == shape):
            found += reported[:1]
            del reported[:1]
        else:
            found.append((read[0][0], shape))
    return found + reported


def _second_factor(first: Side, product: Side) -> Side:
    """Return the weights of a matrix product, computed from the other factor and the result."""
    rows, columns = int(np.prod(product[1][:-1])), product[1][-1] if product[1] else 1
    return first[0], (int(np.prod(first[1])) // max(rows, 1), columns)
