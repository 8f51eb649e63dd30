"""Profile on the host: ONNX Runtime's own clock per node, over several runs, beside what the machine can do."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.base import Array, EngineError, EngineSpec, usable_cores
from engine.sdaa.kernels import kernels
from toolkit.inputs import Shapes, draw
from toolkit.profile.bottlenecks import find_bottlenecks, kinds_of_shape
from toolkit.profile.record import Profile, Step

if TYPE_CHECKING:
    from onnx import ModelProto

WARMUP = 3

_FUSED = {"FusedConv": "Conv", "NhwcFusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul"}
"""ONNX Runtime's own operators whose arithmetic is that of one of ONNX's."""

_BYTES = {"float": 4, "float16": 2, "bfloat16": 2, "double": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4}
"""Bytes per element by ONNX Runtime's names of types; others are taken as 1."""

_SUFFIX = "_kernel_time"


_RENAMED = re.compile(r"(_nchwc|_token_\d+)+$")

Sources = Mapping[str, tuple[str, str]]
"""Name of a node or of a tensor it writes -> the node, and the module it was exported from."""


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
    from engine.onnx_graph import load_model, to_float16
    from toolkit.intermediates import module_of

    original = load_model(spec.ckpt)
    model = to_float16(original) if spec.dtype == "float16" else original
    feed = draw(model, batch=spec.batch_size, shapes=shapes)
    events, calls = timed(model, feed, runs)
    roof = measure_roof()
    sources = {name: (node.name, module_of(node)) for node in original.graph.node for name in (node.name, *node.output)}
    rows = per_node(events)
    notes = [
        f"measured: median of {runs} runs after {WARMUP}, {usable_cores()} cores; the roof is numpy's on this machine"
    ]
    notes += ["target onnx applies no passes: the pass file was not used"] if spec.pass_path else []
    found = Profile(
        model=spec.ckpt.name,
        target="onnx",
        simulated=False,
        device=f"ONNX Runtime CPU, {usable_cores()} cores",
        dtype=spec.dtype or "float32",
        batch=feed[0].shape[0] if feed and feed[0].ndim else 1,
        pass_file="",
        peak_flops=roof.flops,
        bandwidth=roof.bandwidth,
        steps=tuple(_step(name, args, seconds, roof, sources) for name, (args, seconds) in rows.items()),
        copy_in=0.0,
        copy_out=0.0,
        call=median(calls),
        notes=tuple(notes),
    )
    return replace(found, bottlenecks=find_bottlenecks(found, kinds_of_shape(original, model)))


def timed(model: ModelProto, feed: list[Array], runs: int) -> tuple[list[list[dict[str, Any]]], list[float]]:
    """Run a model with ONNX Runtime's profiler on; return the node events and the seconds of every run but the first.

    Raises:
        ModelError: ONNX Runtime cannot load the model.
        EngineError: it fails while computing.
    """
    from engine import ort

    with tempfile.TemporaryDirectory(prefix="tecoinfer-") as folder:
        # engine.ort has no public way to a session that profiles; what it has is used, so that options stay the same.
        options = ort._options(None)
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "run")
        session = ort._session(model, options, ort.CPU)
        named = dict(zip([node.name for node in session.get_inputs()], feed, strict=True))
        calls = []
        try:
            for _ in range(WARMUP + runs):
                start = time.perf_counter()
                session.run(None, named)
                calls.append(time.perf_counter() - start)
        except ort.ORT_ERRORS as error:
            raise EngineError(f"ONNX Runtime failed while computing: {' '.join(str(error).split())}") from error
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return _by_run(events)[WARMUP:], calls[WARMUP:]


def _by_run(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the node events of every run, by when they began."""
    spans = sorted(e["ts"] for e in events if e.get("cat") == "Session" and e.get("name") == "model_run")
    nodes = [e for e in events if e.get("cat") == "Node" and e.get("name", "").endswith(_SUFFIX)]
    return [[e for e in nodes if start <= e["ts"] < end] for start, end in pairwise([*spans, float("inf")])]


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


def _step(name: str, args: Mapping[str, Any], seconds: float, roof: Roof, sources: Sources) -> Step:
    op_type = str(args.get("op_name", ""))
    flops, size = work_of(op_type, args)
    arithmetic, traffic = flops / roof.flops, size / roof.bandwidth
    best = max(arithmetic, traffic)
    # What ONNX Runtime fused or laid out anew is called after the tensor it writes.
    source, module = sources.get(_RENAMED.sub("", name), (name, ""))
    return Step(
        name=name,
        op_type=op_type,
        nodes=(source,),
        module=module,
        seconds=seconds,
        flops=flops,
        bytes=size,
        roof=best,
        bound="launch" if seconds > 10 * best and seconds < 2e-5 else "compute" if arithmetic > traffic else "memory",
    )


def work_of(op_type: str, args: Mapping[str, Any]) -> tuple[float, int]:
    """Return operations and bytes of a node from the shapes ONNX Runtime saw; zeros where it told none."""
    from engine.onnx_graph import NodeView

    read, written = args.get("input_type_shape", []), args.get("output_type_shape", [])
    sides = [next(iter(entry.items())) for entry in (*read, *written)]
    inputs = len(read)
    names = [f"{'in' if i < inputs else 'out'}{i}" for i in range(len(sides))]
    shapes: dict[str, tuple[int | None, ...]] = {n: tuple(shape) for n, (_, shape) in zip(names, sides, strict=True)}
    sizes: dict[str, int | None] = {
        n: int(np.prod(shape)) * _BYTES.get(kind, 1) for n, (kind, shape) in zip(names, sides, strict=True)
    }
    view = NodeView("", _FUSED.get(op_type, op_type), tuple(names[:inputs]), tuple(names[inputs:]), shapes, sizes)
    if not inputs or len(sides) == inputs:
        return 0.0, 0
    found = kernels([view], (), set())
    return (found[0].flops, found[0].read + found[0].written) if found else (0.0, 0)
