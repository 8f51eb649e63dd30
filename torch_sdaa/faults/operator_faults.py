"""Fault injection in single operators, to test the tools: ``TORCH_SDAA_OP_FAULTS``.

``perturb:op=aten::addmm,call=3,size=0.01`` changes the results of the fourth call of an operator by 1 %, alternating up
and down; ``nan:op=...,call=N`` makes them NaN; ``deny:op=...,call=N`` makes the call fail. ``device=K`` selects another
device than ``sdaa:0``; faults are separated by ``;``. Calls are counted for each device, from 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from torch_sdaa.loading.core import C

VARIABLE = "TORCH_SDAA_OP_FAULTS"
KINDS = ("perturb", "nan", "deny")


@dataclass(frozen=True, slots=True)
class OpFault:
    """One fault; see the module docstring."""

    kind: str
    op: str
    call: int = 0
    size: float = 0.01
    device: int = 0


def plant(*faults: OpFault) -> None:
    """Inject faults in addition to the current ones; raise ConfigError if a fault is invalid."""
    for fault in faults:
        _check(fault, VARIABLE)
    for fault in faults:
        C.plant_op_fault(fault.kind, _bare(fault.op), fault.device, fault.call, fault.size)


def clear() -> None:
    """Remove all faults."""
    C.clear_op_faults()


def calls() -> list[int]:
    """Return the number of calls of each fault's operator; the fault has occurred if it exceeds ``call``."""
    found: list[int] = C.op_fault_calls()
    return found


def start(devices: int) -> None:
    """Inject the faults of the environment variable; raise ConfigError if it is invalid."""
    asked = parse(os.environ.get(VARIABLE, ""))
    for fault in asked:
        if fault.device >= devices:
            raise ConfigError(f"{VARIABLE}: device={fault.device}: this process sees {devices} devices, from 0")
    plant(*asked)


def parse(text: str) -> list[OpFault]:
    """Parse faults in the format of the variable; raise ConfigError if the format is invalid."""
    return [_one(entry.strip()) for entry in text.split(";") if entry.strip()]


def _one(entry: str) -> OpFault:
    kind, colon, rest = entry.partition(":")
    fields = dict(part.partition("=")[::2] for part in rest.split(","))
    known = {"op", "call", "device", *(("size",) if kind == "perturb" else ())}
    if not colon or kind not in KINDS or "op" not in fields or not set(fields) <= known:
        raise ConfigError(
            f"{VARIABLE}: {entry!r} is not a fault; write KIND:op=aten::mm,call=N with KIND one of {', '.join(KINDS)} "
            "(perturb also takes size=F, each device=K)"
        )
    try:
        numbers: dict[str, Any] = {name: int(fields[name]) for name in ("call", "device") if name in fields}
        if "size" in fields:
            numbers["size"] = float(fields["size"])
    except ValueError as error:
        raise ConfigError(f"{VARIABLE}: {entry!r}: call, device and size are numbers ({error})") from error
    fault = OpFault(kind, fields["op"], **numbers)
    _check(fault, f"{VARIABLE}: {entry!r}")
    return fault


def _check(fault: OpFault, what: str) -> None:
    if fault.kind not in KINDS:
        raise ConfigError(f"{what}: kind {fault.kind!r} must be one of {', '.join(KINDS)}")
    if fault.call < 0 or fault.device < 0:
        raise ConfigError(f"{what}: call and device count from 0")
    if not 0 < abs(fault.size) < math.inf:
        raise ConfigError(f"{what}: size {fault.size:g} must be a number other than 0")
    name, names = _bare(fault.op).split(".")[0], _names()
    if name not in names:
        raise ConfigError(f"{what}: unknown operator {fault.op!r};{did_you_mean(name, names)} the form is aten::mm")


def _names() -> Sequence[str]:
    return [name.split(".")[0] for name in torch._C._dispatch_get_all_op_names()]


def _bare(op: str) -> str:
    """Return an operator's name in the form of the device, from either of PyTorch's forms."""
    if "::" not in op and op.count("."):
        op = op.replace(".", "::", 1)
    return op.removesuffix(".default")
