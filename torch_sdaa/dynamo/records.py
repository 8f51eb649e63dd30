"""Records of the compilation: graphs, partitions and costs, operators left to the device, and recompilations."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from threading import Lock
from typing import Any

log = logging.getLogger("torch_sdaa.dynamo")

SCHEMA_VERSION = 1
"""Schema version of :meth:`Report.to_json`."""

_LIMITED = "recompile limit exceeded"
"""PyTorch's message for a function that it will not compile again."""

_LIMIT = "torch._dynamo.config.recompile_limit"


@dataclass
class Fallback:
    """An operator that a graph runs outside of partitions: count and reason."""

    op: str
    reason: str
    count: int


@dataclass
class Plan:
    """A partition for the sizes of a call.

    Attributes:
        launch: name in the launch log. file: name of its artefacts. shapes: of its inputs.
        kernels: number of the card's kernels. seconds: simulated, of one run.
        nodes: of the ONNX model. source: ``built``, or ``cache`` (built by another process, or earlier by this one).
        compile_seconds: of this machine. ignored: why a cached entry was not used ("" if there was none).
    """

    launch: str
    file: str
    shapes: tuple[tuple[int, ...], ...]
    kernels: int
    seconds: float
    nodes: int
    source: str
    compile_seconds: float
    ignored: str = ""
    runs: int = 0


@dataclass
class Partition:
    """A part of a graph that is one launch."""

    name: str
    nodes: int
    plans: list[Plan] = field(default_factory=list)


@dataclass
class Graph:
    """A compiled graph.

    Attributes:
        stage: ``forward``, ``backward`` or ``inference``. compile_id: PyTorch's, ``frame/times compiled``.
        nodes: number of operators. draws: random tensors that the device draws in advance.
        written_back: number of inputs mutated at its end.
    """

    stage: str
    compile_id: str
    nodes: int
    draws: int = 0
    written_back: int = 0
    partitions: list[Partition] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return one line, and one for each operator left to the device."""
        parts = len(self.partitions)
        plans = [plan for partition in self.partitions for plan in partition.plans]
        lines = [
            f"{self.compile_id} {self.stage}: {self.nodes} operators, {parts} partition{'s' * (parts != 1)}, "
            f"{sum(each.count for each in self.fallbacks)} left to the device, {self.draws} drawn in advance"
        ]
        lines += [
            f"  {plan.launch}: {plan.kernels} kernels, {plan.seconds * 1e3:.3f} ms simulated, {plan.runs} runs, "
            f"{plan.source} in {plan.compile_seconds:.2f} s"
            f"{f'; cached entry not used: {plan.ignored}' if plan.ignored else ''}"
            for plan in plans
        ]
        lines += [f"  {each.op} x{each.count}: {each.reason}" for each in self.fallbacks]
        return "\n".join(lines)


@dataclass
class Recompilation:
    """A function that was compiled again, and the guard that failed.

    Attributes:
        compile_id: PyTorch's. function: its name. reason: the guard.
        given_up: PyTorch's limit was reached: it was not compiled again, and such calls run uncompiled.
    """

    compile_id: str
    function: str
    reason: str
    given_up: bool = False

    def __str__(self) -> str:
        """Return one line, or more if the guard has more."""
        what = "not compiled again, runs uncompiled:" if self.given_up else "compiled again"
        limit = f"PyTorch's limit {_LIMIT} is reached; " if self.given_up else ""
        return f"{what} {self.compile_id} {self.function}: {limit}{self.reason}"


@dataclass
class GraphBreak:
    """A place where PyTorch stopped tracing; the code after it is another graph.

    Attributes:
        file: of the user's source. line: in it. source: that line. reason: PyTorch's. count: number of occurrences.
    """

    file: str
    line: int
    source: str
    reason: str
    count: int = 1

    def __str__(self) -> str:
        """Return one line."""
        return f"graph break at {self.file}:{self.line} ({self.source}): {self.reason}"


@dataclass
class Report:
    """All graphs since the start, or since :func:`clear`."""

    graphs: list[Graph] = field(default_factory=list)
    recompilations: list[Recompilation] = field(default_factory=list)
    graph_breaks: list[GraphBreak] = field(default_factory=list)

    @property
    def fallbacks(self) -> list[Fallback]:
        """Operators left to the device in any graph, most frequent first."""
        found = Counter({(each.op, each.reason): 0 for graph in self.graphs for each in graph.fallbacks})
        for graph in self.graphs:
            for each in graph.fallbacks:
                found[each.op, each.reason] += each.count
        return [Fallback(*what, count) for what, count in found.most_common()]

    def to_json(self) -> str:
        """Return all of it as JSON: the fields of these classes by name, and ``schema_version``."""
        fallbacks = [asdict(each) for each in self.fallbacks]
        return json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self), "fallbacks": fallbacks}, indent=1)

    def __str__(self) -> str:
        """Return all of it as text."""
        lines = [str(graph) for graph in self.graphs]
        lines += [str(each) for each in self.recompilations]
        lines += [str(each) for each in self.graph_breaks]
        return "\n".join(lines) or "nothing was compiled for sdaa"


_graphs: list[Graph] = []
_lock = Lock()


def add(graph: Graph) -> None:
    """Record a graph, and log it."""
    with _lock:
        _graphs.append(graph)
    log.info("%s", graph)
    for each in graph.fallbacks:
        log.warning(
            "%s %s: %s x%d is left to the device: %s", graph.compile_id, graph.stage, each.op, each.count, each.reason
        )


def clear() -> None:
    """Delete all records."""
    with _lock:
        _graphs.clear()
        _break_reasons().clear()


def report() -> Report:
    """Return the records so far."""
    with _lock:
        graphs = list(_graphs)
    return Report(graphs, _recompilations({graph.compile_id for graph in graphs}), _graph_breaks())


def _break_reasons() -> list[Any]:
    """Return PyTorch's list of graph breaks, without importing the tracer, which takes a second."""
    tracer = sys.modules.get("torch._dynamo.output_graph")
    return [] if tracer is None else tracer.graph_break_reasons


def _graph_breaks() -> list[GraphBreak]:
    """Return the places where PyTorch stopped tracing, for graphs of any backend."""
    found: dict[tuple[str, int, str], GraphBreak] = {}
    for each in _break_reasons():
        lines = [line.strip() for line in each.reason.splitlines() if line.strip()]
        frame = each.user_stack[-1] if each.user_stack else None
        file, number = (frame.filename, frame.lineno or 0) if frame else ("", 0)
        reason = lines[0] if lines else "PyTorch gives no reason"
        if reason.startswith("generic_jump"):
            reason = "a branch depends on values of a tensor"
        met = found.get((file, number, reason))
        if met:
            met.count += 1
        else:
            found[file, number, reason] = GraphBreak(file, number, (frame.line or "") if frame else "", reason)
    return list(found.values())


def _recompilations(ids: set[str]) -> list[Recompilation]:
    """Return PyTorch's records of compilations after the first of a function."""
    from torch._dynamo.utils import get_compilation_metrics

    found: dict[str, Recompilation] = {}
    metrics = get_compilation_metrics()
    functions = {
        str(each.compile_id).partition("/")[0]: str(each.co_name) for each in metrics if each.compile_id in ids
    }
    for each in metrics:
        compile_id, limited = str(each.compile_id), _LIMITED in str(each.fail_reason)
        frame, _, times = compile_id.partition("/")
        if times == "0":  # PyTorch restarts counting after ``torch.compiler.reset``
            found = {other: kept for other, kept in found.items() if other.partition("/")[0] != frame}
        function = functions.get(frame)
        if function and (limited or compile_id in ids) and each.recompile_reason:
            found[compile_id] = Recompilation(compile_id, function, str(each.recompile_reason), limited)
    return list(found.values())
