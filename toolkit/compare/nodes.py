"""Comparison of every node of a model on two engines: accumulated and isolated errors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from engine import Array, EngineError, ModelError
from engine.measures import OTHER_SHAPE, THRESHOLD, Difference, Measured, ValueStats, precision_of
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.progress import progress
from toolkit.compare.replay import Replay
from toolkit.graph.masks import Mask, Masks, masked_note, masks_of, see_sinks
from toolkit.graph.nodes import MEMORY, Node
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source

INHERITED = 10.0
"""Factor of the limit of accumulated errors over that of isolated errors, since rounding adds up along the graph."""

LIMIT = {"float32": 1e-4, "float16": 1e-2}  # default limit of the isolated diff2, by the coarser of the two precisions

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)

_COPIES = 4  # arrays held per tensor: of both engines, and the input and output of the isolated run


@dataclass(frozen=True, slots=True)
class Row:
    """One output of one node."""

    node: Node  # of the original model
    tensor: str  # name of the output
    status: str  # ``compared``, or the reason why not; a value with another shape than the baseline's is bad
    dtype: str = ""  # as stored on the judged engine
    shape: tuple[int, ...] = ()  # of its value
    value_stats: ValueStats | None = None  # of the value
    reference: ValueStats | None = None  # of the baseline's value
    accumulated: Difference | None = None  # difference of the two engines
    isolated: Difference | None = None  # difference of the node run on the baseline's values
    fused: tuple[Node, ...] = ()  # preceding nodes in the same kernel of the judged engine; differences are of all
    masked: int = 0  # number of excluded elements, which are infinite on both engines and become 0 in a softmax


@dataclass
class Comparison:
    """Result of a comparison."""

    rows: list[Row]  # in the order of the graph
    limit: float  # largest isolated diff2 of a good node; accumulated diff2 may be :data:`INHERITED` times as large
    notes: list[str] = field(default_factory=list)  # one line each
    seconds: dict[str, float] = field(default_factory=dict)  # wall time by activity

    @property
    def code(self) -> int:
        """Exit code of a comparing command: 0 no bad node, 1 a bad node, 2 nothing could be compared."""
        if self.first_bad:
            return 1
        return 0 if any(row.accumulated for row in self.rows) else 2

    @property
    def first_isolated(self) -> Row | None:
        """The first node whose isolated difference is bad."""
        return next((row for row in self.rows if row.isolated and is_bad(row.isolated, self.limit)), None)

    @property
    def first_accumulated(self) -> Row | None:
        """The first node whose accumulated difference is bad."""
        return next(
            (row for row in self.rows if row.accumulated and is_bad(row.accumulated, INHERITED * self.limit)), None
        )

    @property
    def first_bad(self) -> Row | None:
        """The first bad node by isolated difference, else by accumulated difference."""
        return self.first_isolated or self.first_accumulated


def is_bad(difference: Difference, limit: float) -> bool:
    """Return whether diff2 exceeds the limit or is not finite."""
    return not isfinite(difference.diff2) or difference.diff2 > limit


def compare_nodes(
    a: Traced,
    b: Traced,
    inputs: Sequence[Array],
    *,
    isolated: bool = True,
    limit: float | None = None,
    memory: int = MEMORY,
) -> Comparison:
    """Compare every node of a model on two engines in one call; arguments and errors as of :func:`compare_calls`."""
    return compare_calls(a, b, [inputs], isolated=isolated, limit=limit, memory=memory)


def compare_calls(
    a: Traced,
    b: Traced,
    calls: Sequence[Sequence[Array]],
    *,
    isolated: bool = True,
    limit: float | None = None,
    memory: int = MEMORY,
) -> Comparison:
    """Compare every node of a model on two engines over several calls, such as the samples of a data set.

    The sums of the differences run over all calls, as if the tensors of the calls were one; a model is opened once.

    Args:
        a: the baseline and reference. b: the judged engine.
        calls: at least one; of each one array per input. Read once per group of nodes.
        isolated: also run every node of ``b`` alone on the baseline's values.
        limit: see :class:`Comparison`; ``None`` takes that of the coarser precision (:data:`LIMIT`).
        memory: largest number of bytes of values held; a larger model is run once per group of nodes.

    Raise InputError, ModelError, EngineError if a model cannot be loaded or run on these inputs.
    """
    result = Comparison([], LIMIT[precision_of(a.dtype, b.dtype)] if limit is None else limit)
    result.notes += [traced.note for traced in (a, b) if traced.note]
    clock = _Clock(result.seconds)
    replay = _replay(a, b, result) if isolated and not a.note else None
    clock.lap("cut into single nodes")
    found = masks_of(source(a.path).model).found
    masks = [Masks(found) for _ in calls]  # of each call, since a call's values decide what is masked in it
    largest = max(calls, key=lambda inputs: sum(array.size for array in inputs))
    groups = a.groups(largest, max(1, memory // _COPIES))
    if len(groups) > 1:
        size = f"{memory / 2**20:.0f} MiB"
        result.notes.append(f"run in {len(groups)} groups of nodes, to hold at most {size} of values at once")
        for inputs, seen in zip(calls, masks, strict=True):
            see_sinks(seen, a, inputs, memory)
    for group in progress(groups, "group"):
        result.rows += _compare_group(a, b, replay, calls, group, masks, result, clock)
    note_masks(result)
    _mark_fused(result.rows, fused_nodes(b))
    result.rows.sort(key=lambda row: row.node.index)
    result.notes += _missing(a, result.rows)
    return result


class _Clock:
    """Stopwatch that adds wall time to a table of seconds."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds, self._last = seconds, time.perf_counter()

    def lap(self, what: str) -> None:
        """Add the time since the last call to the entry ``what``."""
        now = time.perf_counter()
        self._seconds[what] = self._seconds.get(what, 0.0) + now - self._last
        self._last = now


def _replay(a: Traced, b: Traced, result: Comparison) -> Replay | None:
    if b.model is None:
        return None
    try:
        return Replay(b, a.origin.keys())
    except ModelError as error:
        result.notes.append(f"no isolated figures: {error}")
        return None


def _compare_group(
    a: Traced,
    b: Traced,
    replay: Replay | None,
    calls: Sequence[Sequence[Array]],
    group: Sequence[Node],
    masks: Sequence[Masks],
    result: Comparison,
    clock: _Clock,
) -> list[Row]:
    only = {name for node in group for name in node.outputs if name}
    wanted = {*only, *(replay.needs(only) if replay is not None else ())}
    keep = len(calls) > 1  # for one call a session is closed after its run, since each packs the weights anew
    rows = {name: RowSums(node, name, THRESHOLD[precision_of(a.dtype, b.dtype)]) for node, name in _tensors(group)}
    for inputs, seen in zip(calls, masks, strict=True):
        baseline = a.run(inputs, wanted, keep)
        seen.see(baseline)
        clock.lap(f"run {a.target}")
        values = b.run(inputs, only, keep)
        clock.lap(f"run {b.target}")
        alone: dict[str, Array] = {}
        if replay is not None:
            try:
                alone = replay.run(inputs, baseline, only, keep)
            except (ModelError, EngineError) as error:
                result.notes.append(f"no isolated figures: {error}")
                replay = None
                for row in rows.values():
                    row.drop_isolated()
            clock.lap("run single nodes")
        for name in baseline.keys() & values.keys() & rows.keys():
            dtype = "float16" if name in b.half else values[name].dtype.name
            mask = seen.of(name, baseline[name])
            rows[name].add(dtype, baseline[name], values[name], alone.get(name), mask)
        baseline, values, alone = {}, {}, {}  # before the next call takes their memory
        clock.lap("compare")
    # engines that return only the outputs have no rows for inner tensors
    hidden = bool(a.note or b.note)
    return [row.row(_why_not(name, a, b)) for name, row in rows.items() if row.status or not hidden]


def _tensors(group: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    for node in group:
        yield from ((node, name) for name in node.outputs if name)


class RowSums:
    """The row of a tensor that a node produces, gathered over calls.

    Args:
        node, name: the node, and its output. threshold: see :data:`engine.THRESHOLD`.
    """

    def __init__(self, node: Node, name: str, threshold: float) -> None:
        self.node, self.name, self._threshold = node, name, threshold
        self.status = ""
        self._dtype = ""
        self._shape: tuple[int, ...] = ()
        self._masked = 0
        self._accumulated: Measured | None = None
        self._isolated: Measured | None = None
        self._other_shape = self._other_isolated = False

    def add(self, dtype: str, reference: Array, value: Array, alone: Array | None, mask: Mask | None) -> None:
        """Add the arrays of one call.

        Args:
            dtype: as stored on the judged engine. reference, value: of the baseline and of the judged engine.
            alone: output of the isolated run. mask: excludes infinite elements.
        """
        if not self.status:
            self._dtype, self._shape, self.status = dtype, value.shape, "compared"
        if self.status != "compared":  # an earlier call has shown that it cannot be compared
            return
        if any(array.dtype.kind not in "fiub" for array in (value, reference)):
            self.status = f"values are {value.dtype}, not numbers"
            return
        half = dtype == "float16"
        if alone is not None:
            self._isolated = self._isolated or Measured(self._threshold, half)
            if alone.shape != reference.shape:
                self._other_isolated = True
            else:
                wanted, found, _ = _rest(mask, reference, alone)
                self._isolated.add(found, wanted)
        if value.shape != reference.shape:
            self.status = f"shape {list(value.shape)} is not the baseline's {list(reference.shape)}"
            self._shape, self._other_shape = value.shape, True
            return
        self._accumulated = self._accumulated or Measured(self._threshold, half)
        wanted, found, left_out = _rest(mask, reference, value)
        self._accumulated.add(found, wanted)
        self._masked += left_out

    def drop_isolated(self) -> None:
        """Discard the isolated runs, which could not be done for all calls."""
        self._isolated, self._other_isolated = None, False

    def row(self, why_not: str = "not computed") -> Row:
        """Return the row; ``why_not`` is its status if nothing was added."""
        if not self.status:
            return Row(self.node, self.name, why_not)
        isolated = None if self._isolated is None else self._isolated.difference
        if self._other_isolated:
            isolated = OTHER_SHAPE
        found = self._accumulated
        if self._other_shape:
            return Row(self.node, self.name, self.status, self._dtype, self._shape, None, None, OTHER_SHAPE, isolated)
        if found is None or self.status != "compared":
            return Row(self.node, self.name, self.status, self._dtype, self._shape)
        return Row(
            *(self.node, self.name, self.status, self._dtype, self._shape),
            *(found.value, found.reference, found.difference, isolated),
            masked=self._masked,
        )


def row_of(
    node: Node,
    name: str,
    dtype: str,
    threshold: float,
    reference: Array,
    value: Array,
    alone: Array | None = None,
    mask: Mask | None = None,
) -> Row:
    """Return the row of a tensor in one call; arguments as of :class:`RowSums` and its ``add``."""
    found = RowSums(node, name, threshold)
    found.add(dtype, reference, value, alone, mask)
    return found.row()


def _rest(mask: Mask | None, reference: Array, value: Array) -> tuple[Array, Array, int]:
    """Return the unmasked elements of the reference and of the value, and the number of masked elements."""
    if mask is None:
        return reference, value, 0
    left_out = mask.covers(reference, value)
    return reference[~left_out], value[~left_out], int(np.count_nonzero(left_out))


def note_masks(result: Comparison) -> None:
    """Add a note on the masked elements."""
    rows = sorted((row for row in result.rows if row.masked), key=lambda row: row.node.index)
    if rows:
        result.notes.append(masked_note([row.node.name for row in rows], sum(row.masked for row in rows)))


def _why_not(name: str, a: Traced, b: Traced) -> str:
    if name in a.skipped:
        return f"{a.skipped[name]}, not an array of numbers"
    lacking = next((traced for traced in (a, b) if not traced.exposes(name)), None)
    return lacking.lacks if lacking else "not computed"


def fused_nodes(traced: Traced) -> dict[str, tuple[Node, ...]]:
    """Return by tensor name the preceding nodes that the engine computes in the same kernel and does not expose."""
    if traced.model is None:
        return {}
    hidden: dict[str, list[Node]] = {}
    found: dict[str, tuple[Node, ...]] = {}
    for node in _of_data(traced):
        before = dict.fromkeys(one for name in node.inputs for one in hidden.get(name, ()))
        for name in filter(None, node.outputs):
            if traced.exposes(name):
                found |= {name: tuple(before)} if before else {}
            elif name not in traced.skipped:
                hidden[name] = [*before, node]
    return found


def _of_data(traced: Traced) -> Iterator[Node]:
    """Yield the nodes whose outputs depend on the inputs; the others are constant-folded when the engine is built."""
    data = {spec.name for spec in traced.inputs}
    for node in traced.nodes:
        if data.intersection(node.inputs) and node.op not in ("Shape", "Size"):
            data.update(node.outputs)
            yield node


def _mark_fused(rows: list[Row], fused: Mapping[str, tuple[Node, ...]]) -> None:
    """Set the fused nodes of each row, and the status of nodes that were fused into another."""
    rows[:] = [replace(row, fused=fused.get(row.tensor, ())) if row.accumulated else row for row in rows]
    into = {node.name: row.node.name for row in reversed(rows) for node in row.fused}
    for i, row in enumerate(rows):
        if not row.shape and row.accumulated is None and row.node.name in into and row.status.startswith("not there"):
            rows[i] = replace(row, status=f"fused into {into[row.node.name]}")


def _missing(a: Traced, rows: Sequence[Row]) -> list[str]:
    """Return notes on tensors that were not compared or cannot be judged."""
    kinds = [plural(count, f"{kind} tensor") for kind, count in sorted(Counter(a.skipped.values()).items())]
    inner = [node.name for node in a.nodes if node.op in ("If", "Loop", "Scan")]
    drawn = [node.name for node in a.nodes if node.op in _RANDOM]
    broken = [row.node.name for row in rows if row.reference and (row.reference.nan or row.reference.infinite)]
    notes: Iterable[tuple[Iterable[str], str, str]] = (
        (kinds, "not compared, since they are not arrays of numbers: ", ""),
        (inner[:3], "nodes inside the bodies of ", " are not listed; the node as a whole is"),
        (drawn[:3], "", " draw random numbers: they and all following nodes differ in every run"),
        (dict.fromkeys(broken[:3]), f"NaN or infinity on {a.target} too, equal values count as no difference: ", ""),
    )
    return [f"{before}{', '.join(names)}{after}" for names, before, after in notes if names]
