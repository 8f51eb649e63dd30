"""Exported files: times of every call and of every kernel, and a trace for Perfetto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from engine import ConfigError, Engine
from tecoexec.measure import CallRecord, Measurement
from tecoexec.report import SCHEMA_VERSION
from tecoinfer_modelzoo.files import write_file
from utils.pipeline.report.report import write_json

if TYPE_CHECKING:
    from engine.sdaa import SdaaEngine


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
