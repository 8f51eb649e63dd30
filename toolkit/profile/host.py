"""Profile on the host: ONNX Runtime's own clock per node, over several runs, beside what the machine can do."""

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
from toolkit.profile.checks import checked_inputs
from toolkit.profile.record import Launch, Profile

if TYPE_CHECKING:
    from onnx import ModelProto

    from engine.onnx import NodeView

WARMUP = 3

_FUSED = {"FusedConv": "Conv", "NhwcFusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul"}
"""ONNX Runtime's own operators whose arithmetic is that of one of ONNX's."""

_BYTES = {"float": 4, "float16": 2, "bfloat16": 2, "double": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4}
"""Bytes per element by ONNX Runtime's names of types; others are taken as 1."""

_SUFFIX = "_kernel_time"

_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")

Shape = tuple[int, ...]


class OriginalNode(NamedTuple):
    """A node of the model as it was written.

    Attributes:
        name, op_type: its own. module: what it was exported from, or "".
        weights: shape of each input that is a weight, else ``None``.
    """

    name: str
    op_type: str
    module: str
    weights: tuple[Shape | None, ...]


class Roof(NamedTuple):
    """What the machine can do: operations per second, and bytes per second."""

    flops: float
    bandwidth: float


def measure_roof(seconds: float = 0.1) -> Roof:
    """Measure a float32 matrix product and a copy larger than the caches, by numpy; the best of what fits the time."""
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
    """Return where the time of one run goes on ONNX Runtime's CPU provider, as the median over runs.

    Like target ``onnx`` it applies no passes; what ONNX Runtime optimises by itself is in it.

    Raises:
        TecoInferError: the model cannot be read or run.
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
    notes = [f"measured: median of {runs} runs after {WARMUP}, {cores} cores; the roof is numpy's, or the fastest step"]
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
    """Return the roof and the steps; where a step computes faster than numpy did, it is the roof."""

    def under(roof: Roof) -> tuple[Launch, ...]:
        return tuple(_step(name, args, seconds, roof, origin) for name, (args, seconds) in rows.items())

    measured = measure_roof()
    fastest = max((step.flops / step.seconds for step in under(measured) if step.seconds > 0), default=0.0)
    roof = measured._replace(flops=max(measured.flops, fastest))
    return roof, under(roof)


def timed(
    model: ModelProto, feed: list[Array], runs: int, source: Path | None = None
) -> tuple[list[list[dict[str, Any]]], list[float]]:
    """Run a model with ONNX Runtime's profiler on; return the node events and the seconds of every run but the first.

    Args:
        model, feed, runs: what is run, on what, and how often after the warm-up.
        source: the file that the model is from, which messages name.

    Raises:
        ModelError: ONNX Runtime cannot load the model.
        EngineError: it fails while computing.
    """
    from engine import HostSession

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
    """Return the node events of every run, by when they began."""
    spans = sorted(e["ts"] for e in events if e.get("cat") == "Session" and e.get("name") == "model_run")
    found: list[list[dict[str, Any]]] = [[] for _ in spans]
    for event in events:
        if event.get("cat") == "Node" and event.get("name", "").endswith(_SUFFIX):
            run = bisect_right(spans, event["ts"]) - 1
            if run >= 0:
                found[run].append(event)
    return found


def per_node(runs: list[list[dict[str, Any]]]) -> dict[str, tuple[dict[str, Any], float]]:
    """Return arguments and median seconds by node, in order; a node in a loop counts all its turns of a run."""
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
    """Return the nodes of a model by their names, and by the tensors they write."""
    from toolkit.graph.modules import module_of

    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    found: dict[str, OriginalNode] = {}
    for node in model.graph.node:
        one = OriginalNode(node.name, node.op_type, module_of(node), tuple(shapes.get(name) for name in node.input))
        found |= dict.fromkeys((*node.output, node.name), one)
    return found


def _step(name: str, args: Mapping[str, Any], seconds: float, roof: Roof, origin: Mapping[str, OriginalNode]) -> Launch:
    op_type = str(args.get("op_name", ""))
    # What ONNX Runtime fused or laid out anew is called after the tensor it writes.
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
    """Return operations and bytes of a node from the shapes ONNX Runtime saw; zeros where it told none.

    It does not tell the weights that it has laid out for itself; theirs are taken from the node as it was written, or
    follow from what a product reads and writes. Where they cannot be had either, no operations are counted.
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


Side = tuple[str, Sequence[int]]
"""Type and shape of what a node reads or writes, as ONNX Runtime's profiler names them."""


def _numbered(word: str, sides: Sequence[Side]) -> dict[str, Side]:
    return {f"{word}{i}": side for i, side in enumerate(sides)}


def _all_read(kind: str, read: list[Side], written: list[Side], source: OriginalNode) -> list[Side]:
    """Return what a node reads, with the weights that were not told."""
    if kind == source.op_type and len(read) < len(source.weights):
        read = _with_weights(read, source.weights)
    if kind in ("Gemm", "MatMul") and (len(read) < 2 or len(read[1][1]) < 2):
        return [read[0], _second_factor(read[0], written[0]), *read[1:]]
    return read


def _priced(view: NodeView, size: int) -> tuple[float, int]:
    """Return operations and bytes of a node; none, and this size, where the cost model cannot tell them."""
    try:
        found = kernels_of([view], (), set())
    except (IndexError, KeyError, ValueError):
        return 0.0, size
    return (found[0].flops, found[0].read + found[0].written) if found else (0.0, 0)


def _with_weights(read: list[Side], weights: Sequence[Shape | None]) -> list[Side]:
    """Put the weights that were not told among what was, in the node's order."""
    told, found = list(read), []
    for shape in weights:
        if shape is None or (told and tuple(told[0][1]) == shape):
            found += told[:1]
            del told[:1]
        else:
            found.append((read[0][0], shape))
    return found + told


def _second_factor(first: Side, product: Side) -> Side:
    """Return the weights of a matrix product, which follow from the other factor and the result."""
    rows, columns = int(np.prod(product[1][:-1])), product[1][-1] if product[1] else 1
    return first[0], (int(np.prod(first[1])) // max(rows, 1), columns)
