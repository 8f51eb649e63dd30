"""Comparison of every node of a model on two engines: accumulated and isolated errors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan

import numpy as np

from engine import Array, EngineError, ModelError
from engine.measures import OTHER_SHAPE, THRESHOLD, Difference, ValueStats, differences, precision_of, value_stats
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
    """Compare every node of a model on two engines.

    Args:
        a: the baseline and reference. b: the judged engine. inputs: one array per input.
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
    masks = masks_of(source(a.path).model)
    groups = a.groups(inputs, max(1, memory // _COPIES))
    if len(groups) > 1:
        size = f"{memory / 2**20:.0f} MiB"
        result.notes.append(f"run in {len(groups)} groups of nodes, to hold at most {size} of values at once")
        see_sinks(masks, a, inputs, memory)
    for group in progress(groups, "group"):
        result.rows += _compare_group(a, b, replay, inputs, group, masks, result, clock)
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
    inputs: Sequence[Array],
    group: Sequence[Node],
    masks: Masks,
    result: Comparison,
    clock: _Clock,
) -> list[Row]:
    only = {name for node in group for name in node.outputs if name}
    # A run of named tensors uses a temporary session, since every session holds a packed copy of the weights.
    baseline = a.run(inputs, {*only, *(replay.needs(only) if replay is not None else ())})
    masks.see(baseline)
    clock.lap(f"run {a.target}")
    values = b.run(inputs, only)
    clock.lap(f"run {b.target}")
    alone: dict[str, Array] = {}
    if replay is not None:
        try:
            alone = replay.run(inputs, baseline, only)
        except (ModelError, EngineError) as error:
            result.notes.append(f"no isolated figures: {error}")
        clock.lap("run single nodes")
    rows = list(_rows(a, b, group, masks, baseline, values, alone))
    clock.lap("compare")
    return rows


def _rows(
    a: Traced,
    b: Traced,
    group: Sequence[Node],
    masks: Masks,
    baseline: Mapping[str, Array],
    values: Mapping[str, Array],
    alone: Mapping[str, Array],
) -> Iterator[Row]:
    there = baseline.keys() & values.keys()
    tensors = [(node, name) for node in group for name in node.outputs if name]
    threshold = THRESHOLD[precision_of(a.dtype, b.dtype)]
    for node, name in tensors:
        if name in there:
            dtype = "float16" if name in b.half else values[name].dtype.name
            mask = masks.of(name, baseline[name])
            yield row_of(node, name, dtype, threshold, baseline[name], values[name], alone.get(name), mask)
        elif not (a.note or b.note):  # engines that return only the outputs have no rows for inner tensors
            yield Row(node, name, _why_not(name, a, b))


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
    """Return the row of a tensor that a node produces, stored as ``dtype`` on the judged engine.

    ``alone``: output of the isolated run. ``threshold``: see :data:`engine.THRESHOLD`. ``mask`` excludes infinite
    elements.
    """
    if any(array.dtype.kind not in "fiub" for array in (value, reference)):
        return Row(node, name, f"values are {value.dtype}, not numbers", dtype, value.shape)
    judged = [value] if alone is None else [value, alone]
    found = _measured(judged, reference, threshold, mask)
    isolated = None if alone is None else found[1]
    if value.shape != reference.shape:
        status = f"shape {list(value.shape)} is not the baseline's {list(reference.shape)}"
        return Row(node, name, status, dtype, value.shape, None, None, found[0], isolated)
    full, left_out = value.shape, 0
    if mask is not None:
        reference, value, left_out = _rest(mask, reference, value)
    held = value_stats(value, reference, dtype == "float16")
    return Row(node, name, "compared", dtype, full, held, _range(reference), found[0], isolated, (), left_out)


def _rest(mask: Mask, reference: Array, value: Array) -> tuple[Array, Array, int]:
    """Return the unmasked elements of the reference and of the value, and the number of masked elements."""
    left_out = mask.covers(reference, value)
    return reference[~left_out], value[~left_out], int(np.count_nonzero(left_out))


def _measured(judged: Sequence[Array], reference: Array, threshold: float, mask: Mask | None) -> list[Difference]:
    """Return the difference of each array from the reference."""
    fit = [array for array in judged if array.shape == reference.shape]
    if mask is None:
        measured = iter(differences(fit, reference, threshold) if fit else ())
    else:
        rests = (_rest(mask, reference, array) for array in fit)
        measured = iter([differences([value], wanted, threshold)[0] for wanted, value, _ in rests])
    return [next(measured) if array.shape == reference.shape else OTHER_SHAPE for array in judged]


def _range(array: Array) -> ValueStats:
    """Return range and number of NaN and infinities of the baseline's value."""
    if not array.size:
        return ValueStats(nan, nan, 0, 0, 0, 0)
    low, high = float(array.min()), float(array.max())
    if isfinite(low) and isfinite(high):
        return ValueStats(low, high, 0, 0, 0, 0)
    finite = array[np.isfinite(array)]
    nans = int(np.count_nonzero(np.isnan(array)))
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (nan, nan)
    return ValueStats(low, high, nans, array.size - finite.size - nans, 0, 0)


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
