"""Output of a run: trtexec's summary, two lines for scripts, warnings, and files with times and traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from engine import ConfigError, Engine
from tecoexec.measure import CallRecord, Measurement
from tecoexec.request import Request
from tecoexec.shapes import CardShapes
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import printable, shape_text
from utils.advice import SHORT
from utils.pipeline.report.report import environment, write_json

if TYPE_CHECKING:
    from engine.sdaa import SdaaEngine

SCHEMA_VERSION = 1
"""Version of the JSON layouts of tecoexec; increased when a field changes its meaning or is removed."""

UNSTEADY = 0.10
"""Coefficient of variation of the computing time above which the mean is unreliable."""

FEW = 10
"""Iterations below which percentiles and the start of the queue are unreliable."""

PERCENTILES = (90, 95, 99)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return minimum, maximum, mean, median and percentiles in milliseconds."""
    ms = np.asarray(seconds) * 1e3
    shown = {"min": ms.min(), "max": ms.max(), "mean": ms.mean(), "median": np.median(ms)}
    shown |= {f"percentile_{p}": np.percentile(ms, p) for p in PERCENTILES}
    return {name: float(value) for name, value in shown.items()}


def summary(measured: Measurement) -> dict[str, Any]:
    """Return all results of a run; ``h2d_ms`` and ``d2h_ms`` are ``None`` if copies were not measured."""
    copies_in = [call.copy_in for call in measured.calls if call.copy_in is not None]
    copies_out = [call.copy_out for call in measured.calls if call.copy_out is not None]
    return {
        "simulated": measured.simulated,
        "run_sync": measured.run_sync,
        "iterations": len(measured.calls),
        "batch": measured.batch,
        "average_inference_time_ms": measured.average * 1e3,
        "queries_per_second": 1 / measured.average,
        "samples_per_second": measured.throughput,
        "latency_ms": spread([call.latency for call in measured.calls]),
        "h2d_ms": spread(copies_in) if copies_in else None,
        "compute_ms": spread([call.compute for call in measured.calls]),
        "d2h_ms": spread(copies_out) if copies_out else None,
        "elapsed_ms": measured.elapsed * 1e3,
        "host_wall_s": measured.host_seconds,
    }


def caveats(measured: Measurement, engine: Engine, shapes: CardShapes) -> list[str]:
    """Return the reasons why results are unreliable, one sentence each."""
    events = engine.device_report().get("events", [])
    return [*events, *_few_or_unsteady(measured), *_bounds(measured), *_padding(engine, shapes)]


def _few_or_unsteady(measured: Measurement) -> Iterator[str]:
    """Yield the reasons why the mean is unreliable."""
    compute = np.array([call.compute for call in measured.calls])
    variation = float(compute.std() / compute.mean()) if compute.mean() else 0.0
    if variation > UNSTEADY:
        why = "" if measured.simulated else ", and stop other processes while measuring"
        yield f"computing times vary by {variation:.0%} (deviation over mean): use the median{why}"
    if len(measured.calls) < FEW and not (measured.simulated and measured.run_sync):
        yield f"{len(measured.calls)} iterations are few: use --iterations={FEW} or more"


def _bounds(measured: Measurement) -> Iterator[str]:
    """Yield other bounds of the throughput than computing."""
    compute = _mean(call.compute for call in measured.calls)
    copies_in = _mean(call.copy_in for call in measured.calls)
    copies_out = _mean(call.copy_out for call in measured.calls)
    for name, seconds in (("in", copies_in), ("out", copies_out)):
        if seconds > compute:
            yield f"copies {name} take longer than computing: they limit the throughput"
    # The host's queueing time cannot be compared with simulated times.
    if not measured.simulated and (measured.enqueue_seconds or 0.0) > compute:
        more = "; use a larger batch" if measured.host_seconds >= SHORT else ""
        yield f"enqueue bound: queueing a call takes longer than running it{more}"


def _mean(seconds: Iterable[float | None]) -> float:
    """Return the mean, with 0 for unmeasured values."""
    return float(np.mean([one or 0.0 for one in seconds]))


def _padding(engine: Engine, shapes: CardShapes) -> list[str]:
    shard = getattr(engine, "shard_size", None)
    if not engine.simulated or shard is None or shapes.batch % shard == 0:
        return []
    padded = -(-shapes.batch // shard) * shard
    return [f"batch {shapes.batch} is computed as {padded}, in shards of {shard}; samples/s counts only {shapes.batch}"]


def lines(request: Request, engine: Engine, shapes: CardShapes, measured: Measurement) -> list[str]:
    """Return the summary, ending in the two lines for scripts."""
    figures = summary(measured)
    label = " (simulated)" if measured.simulated else ""
    how = "one after another" if measured.run_sync else "queued"
    found = [
        f"{request.model.name} on target {request.target}: {engine.describe()}",
        f"inputs: {_inputs(engine, shapes)}; precision {engine.dtype}",
        f"{request.iterations} iterations, {how}, after {request.warm_up} to warm up",
        f"=== performance summary: {'simulated device' if label else 'host wall'} times ===",
        f"throughput{label}: {figures['queries_per_second']:.2f} queries/s, "
        f"{figures['samples_per_second']:.2f} samples/s",
        f"latency{label}: {_spread(figures['latency_ms'])}",
        f"H2D{label}: {_spread(figures['h2d_ms'])}",
        f"compute{label}: {_spread(figures['compute_ms'])}",
        f"D2H{label}: {_spread(figures['d2h_ms'])}",
        f"all iterations{label}: {milliseconds(measured.elapsed)} ms",
        f"total host wall time: {measured.host_seconds:.3f} s" + (", no figure of the device" if label else ""),
        *(f"warning: {text}" for text in caveats(measured, engine, shapes)),
        *(["the next two figures are simulated"] if measured.simulated else []),
        f"average inference time is {milliseconds(measured.average)} ms.",
        f"latency is {milliseconds(measured.latency)} ms.",
    ]
    return [printable(line, keep="") for line in found]  # names from the model may contain line breaks


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds with two decimals, or with three digits if it is below one."""
    ms = seconds * 1e3
    return f"{ms:.2f}" if ms >= 1 else np.format_float_positional(ms, precision=3, fractional=False, trim="-")


def to_dict(request: Request, engine: Engine, shapes: CardShapes, measured: Measurement) -> dict[str, Any]:
    """Return a run as plain data: request, results and environment."""
    from engine import provider

    inputs = [
        {"name": spec.name, "dtype": spec.dtype.name, "shape": list(shape)}
        for spec, shape in zip(engine.inputs, shapes.whole, strict=True)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "tecoexec",
        "model": str(request.model),
        "target": request.target,
        "provider": provider(request.target),
        "engine": engine.describe(),
        "dtype": engine.dtype,
        "pass_path": str(request.pass_path) if request.pass_path else None,
        "inputs": inputs,
        "warm_up": request.warm_up,
        "simulate_only": request.simulate_only,
        "summary": summary(measured),
        "warnings": caveats(measured, engine, shapes),
        "device": engine.device_report(),
        **environment(),
    }


def _inputs(engine: Engine, shapes: CardShapes) -> str:
    return ", ".join(
        f"{spec.name} {shape_text(shape)} {spec.dtype}" for spec, shape in zip(engine.inputs, shapes.whole, strict=True)
    )


def _spread(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "not measured on this target"
    return ", ".join(
        f"{name.replace('percentile_', '')}{'%' if name[0] == 'p' else ''} {milliseconds(ms * 1e-3)} ms"
        for name, ms in figures.items()
    )


def write_times(path: Path, measured: Measurement) -> None:
    """Write the times of every call in milliseconds since the start of the first one."""
    begun = measured.calls[0].start
    calls = [_call(call, begun) for call in measured.calls]
    head = {"schema_version": SCHEMA_VERSION, "kind": "tecoexec_times", "simulated": measured.simulated}
    write_json({**head, "batch": measured.batch, "calls": calls}, path)


def _call(call: CallRecord, begun: float) -> dict[str, float | None]:
    shown: dict[str, float | None] = {"start_ms": (call.start - begun) * 1e3, "end_ms": (call.end - begun) * 1e3}
    for name, seconds in (("h2d_ms", call.copy_in), ("compute_ms", call.compute), ("d2h_ms", call.copy_out)):
        shown[name] = None if seconds is None else seconds * 1e3
    return {**shown, "latency_ms": call.latency * 1e3}


def require_profile(engine: Engine, target: str) -> None:
    """Reject a profile of an engine without kernel times; raise ConfigError if the engine is not the simulated card."""
    if not engine.simulated:
        fix = f"target {target} does not report kernel times"
        raise ConfigError(f"--exportProfile is only for the simulated card (--target=sdaa): {fix}")


def write_profile(path: Path, engine: Engine) -> None:
    """Write the simulated time of every kernel of one shard on one SPA."""
    cost = cast("SdaaEngine", engine).cost
    kernels = [
        {
            "name": kernel.name,
            "op_type": kernel.op_type,
            "nodes": kernel.nodes,
            "launches": kernel.launches,
            "gflop": kernel.flops * 1e-9,
            "time_ms": seconds * 1e3,
            "percentage": 100 * seconds / cost.compute if cost.compute else 0.0,
        }
        for kernel, seconds in zip(cost.kernels, cost.kernel_seconds, strict=True)
    ]
    head = {"schema_version": SCHEMA_VERSION, "kind": "tecoexec_profile", "simulated": True}
    copies = {"h2d_ms": cost.copy_in * 1e3, "compute_ms": cost.compute * 1e3, "d2h_ms": cost.copy_out * 1e3}
    write_json({**head, "shard_size": cast("SdaaEngine", engine).shard_size, **copies, "kernels": kernels}, path)


def write_trace(path: Path, engine: Engine) -> None:
    """Write a Chrome trace, on a simulated device of the SPA's clocks, else of the engine calls on the host."""
    simulated = engine.simulated
    timeline = cast("SdaaEngine", engine).card.timeline if simulated else engine.timeline
    text = json.dumps(timeline.chrome_trace("simulated" if simulated else "host wall time"))
    try:
        write_file(path, (text + "\n").encode())
    except OSError as error:
        raise ConfigError(f"result file {path} cannot be written: {error.strerror}; choose another folder") from error
