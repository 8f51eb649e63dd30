"""Line, module and phase of each launch."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from torch_sdaa.profiling.collect import BACKWARD, CLOSURE, EVALUATED, LAUNCH, OP, RANGE, Collected
from torch_sdaa.profiling.spans import with_parents

FORWARD, BACKWARDS, UPDATE = "forward", "backward", "update"


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a launch.

    Attributes:
        phase: forward, backward or update. step: number of returned optimizer steps.
        line: index in ``Collected.lines``; for a backward the line of its forward; -1 if unknown.
        module: likewise in ``modules``. node: autograd node that ran it, for an update the optimizer's class, or "".
        begin, end: of the enclosing runtime call, else of the launch; nanoseconds of the host.
        worker: whether an autograd thread ran it.
        own: whether the line is in a backward, hook or recomputed forward of the script.
    """

    phase: str
    step: int
    line: int
    module: int
    node: str
    begin: int
    end: int
    worker: bool
    own: bool = False


def origins(found: Collected) -> dict[int, Origin]:
    """Return the origin of each launch by its index in the log."""
    makers = _makers(found)
    last = -1
    out: dict[int, Origin] = {}
    for i, around in with_parents(found.host):
        span = found.host[i]
        if span.line >= 0 and not span.worker:
            last = span.line
        if span.doing != LAUNCH:
            continue
        chain = [found.host[k] for k in around]
        line = next((one.line for one in chain if one.line >= 0), -1)
        module = span.module
        nodes = [one for one in chain if one.doing == BACKWARD]
        node, own = "", span.worker and line >= 0
        if nodes:
            node = found.names[nodes[0].name].removeprefix(EVALUATED)
            made_line, module = makers.get((nodes[0].maker, nodes[0].sequence), (-1, -1))
            module = span.module if own and span.module >= 0 else module
            line = line if own or made_line < 0 else made_line
        ranges = [found.names[one.name] for one in chain if one.doing == RANGE]
        phase = FORWARD
        if nodes or span.worker:
            phase = BACKWARDS
        elif optimizer := _updates(ranges):
            phase, node = UPDATE, optimizer
        outer = next((one for one in reversed(chain) if one.doing > RANGE), span)
        step = bisect_left(found.steps, span.begin)
        line = line if line >= 0 else last
        out[span.at] = Origin(phase, step, line, module, node, outer.begin, outer.end, span.worker, own)
    return out


def _updates(ranges: list[str]) -> str:
    """Return the class of the optimizer whose step is active, by the names of the ranges, outermost first.

    "" if there is none, and in its closure. PyTorch names the range ``Optimizer.step#SGD.step``.
    """
    inner = next((name for name in reversed(ranges) if name == CLOSURE or name.startswith("Optimizer.")), CLOSURE)
    return "" if inner == CLOSURE else inner.rpartition("#")[2].partition(".")[0] or inner


def _makers(found: Collected) -> dict[tuple[int, int], tuple[int, int]]:
    """Return line and module of the operator that made an autograd node, by thread and sequence number.

    Operators that make no node have the number of the next node; the last one with a number has made it.
    """
    made: dict[tuple[int, int], tuple[int, int]] = {}
    for i, around in with_parents(found.host):
        span = found.host[i]
        if span.doing != OP or span.sequence < 0:
            continue
        line = next((found.host[k].line for k in (*around, i) if found.host[k].line >= 0), -1)
        if span.worker and line < 0:
            continue
        made[span.maker, span.sequence] = (line, span.module)
    return made
