"""Bottlenecks of a profile: slow operators, copies, format conversions, recompilation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from engine.onnx import dims, graph_inputs
from engine.sdaa import ACTIVATIONS, SELECTING
from toolkit.profile import fixes
from toolkit.profile.fixes import fix_of
from toolkit.profile.record import Bottleneck, Launch, Profile, WhatIf

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

SLOW_SHARE, SLOW_ROOF = 0.10, 0.5
"""A slow operator takes at least this share of the time, and reaches at most this share of the roof."""

NOTICED = 0.02  # smallest share of the time of reported copies and conversions

COPIES = SELECTING | {
    *("Transpose", "Split", "Concat", "Expand", "Tile", "Pad", "DepthToSpace", "SpaceToDepth"),
    *("ScatterND", "ScatterElements"),
}
"""Operators that only move data, often views in the framework."""

CONVERSIONS = frozenset(
    ("Cast", "CastLike", "ReorderInput", "ReorderOutput", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
)
"""Operators that only change dtype or layout."""

ELEMENTWISE = ACTIVATIONS | {
    *("Add", "Sub", "Mul", "Div", "Pow", "Exp", "Sqrt", "Erf", "Gelu", "QuickGelu", "BiasGelu", "FastGelu"),
    *("Swish", "Mish", "Softplus"),
}
"""Operators that can be fused into the preceding kernel."""

Fix = Callable[[str, Iterable[str]], str]
"""Function from a bottleneck's name in :mod:`toolkit.profile.fixes` and its operators to the fix."""

_LAYOUT_ORDERS = ([0, 2, 3, 1], [0, 3, 1, 2])  # transposes between channels first and channels last

_CHANGING = frozenset(("NonZero", "Unique", "Compress", "NonMaxSuppression", "Loop", "If", "Scan", "SequenceEmpty"))
"""Operators with data-dependent output sizes."""


class ShapeFacts(NamedTuple):
    """Dynamic inputs as text, nodes of data-dependent size, and transposes between layouts."""

    inputs: tuple[str, ...]
    open_nodes: tuple[str, ...]
    layout_changes: frozenset[str]


def kinds_of_shape(original: ModelProto, run: ModelProto, unknown: Iterable[str] = ()) -> ShapeFacts:
    """Return the facts on shapes of a model, as in the file and as it ran, with kernels of unknown size."""
    inputs = [f"{info.name} [{', '.join(str(d or '?') for d in dims(info))}]" for info in _dynamic(original)]
    # Unnamed nodes have the names of their kernels.
    changing = [n.name or f"{n.op_type}_{i}" for i, n in enumerate(run.graph.node) if n.op_type in _CHANGING]
    # Without such an operator an unknown size is constant, but was not inferred.
    open_nodes = dict.fromkeys([*changing, *unknown]) if changing else ()
    turned = frozenset(node.name for node in run.graph.node if _turns(node))
    return ShapeFacts(tuple(inputs), tuple(open_nodes), turned)


def _dynamic(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs with a dynamic size besides the first dimension."""
    return [info for info in graph_inputs(model) if any(not isinstance(d, int) for d in dims(info)[1:])]


def _turns(node: NodeProto) -> bool:
    """Return whether a node is a transpose between layouts."""
    orders = [list(a.ints) for a in node.attribute if a.name == "perm"]
    return node.op_type == "Transpose" and any(order in _LAYOUT_ORDERS for order in orders)


def fusion(profile: Profile) -> list[WhatIf]:
    """Return the time if every elementwise step were fused into the preceding one: a lower bound."""
    loose = [step for step in profile.steps if step.op_type in ELEMENTWISE]
    left = profile.compute - sum(step.seconds for step in loose)
    return [WhatIf(f"{len(loose)} elementwise kernels fused into those before (at best)", left)] if loose else []


def one_layout(profile: Profile, facts: ShapeFacts) -> list[WhatIf]:
    """Return the time without steps that only change layout or dtype: a lower bound."""
    turns = [step for step in profile.steps if _converts(step, facts)]
    spent = sum(step.seconds for step in turns)
    what = f"one layout and dtype throughout: without {len(turns)} conversions"
    return [WhatIf(what, profile.compute - spent)] if profile.share(spent) >= NOTICED else []


def find_bottlenecks(
    profile: Profile, facts: ShapeFacts, saved: Mapping[str, float] | None = None
) -> tuple[Bottleneck, ...]:
    """Return the bottlenecks of a profile with ``what_if``, the costliest first and recompilation last.

    ``saved``: seconds saved by the chosen rewrite rules, by operator; fixes mention rules only where they save time.
    """
    fix = partial(fix_of, profile=profile, saved=saved)
    conversions = [step for step in profile.steps if _converts(step, facts)]
    copies = [step for step in profile.steps if step.op_type in COPIES and not _converts(step, facts)]
    moved = {step.name for step in (*conversions, *copies)}
    found = [*_slow(profile, moved, fix), *_copies(profile, copies, fix), *_conversions(profile, conversions, fix)]
    return (*sorted(found, key=lambda one: -(one.seconds or 0.0)), *_recompilation(facts, profile.simulated))


def _converts(step: Launch, facts: ShapeFacts) -> bool:
    turned = step.op_type == "Transpose" and bool(facts.layout_changes.intersection((step.name, *step.nodes)))
    return step.op_type in CONVERSIONS or turned


def _slow(profile: Profile, moved: set[str], fix: Fix) -> list[Bottleneck]:
    found = []
    known = [step for step in profile.steps if step.name not in moved and step.bound != "unknown"]
    for op_type, count, seconds in profile.operators():
        steps = [step for step in known if step.op_type == op_type]
        reached = _reached(steps, seconds)
        if not steps or profile.share(seconds) < SLOW_SHARE or reached > SLOW_ROOF:
            continue
        bound = _bound(steps)
        text = f"{op_type}: {count} kernels take {profile.share(seconds):.0%} of the time at {reached:.0%} of the roof"
        text += f", mostly {bound}-bound"
        found.append(Bottleneck("slow operator", text, fix(bound, [op_type]), _names(steps), seconds))
    return found


def _reached(steps: Sequence[Launch], seconds: float) -> float:
    """Return the share of the roof that steps reach in this time."""
    return sum(step.roof for step in steps) / seconds if seconds else 0.0


def _bound(steps: Sequence[Launch]) -> str:
    """Return the bound of most of the steps' time."""
    spent: dict[str, float] = {}
    for step in steps:
        spent[step.bound] = spent.get(step.bound, 0.0) + step.seconds
    return max(spent, key=spent.__getitem__)


def _copies(profile: Profile, steps: Sequence[Launch], fix: Fix) -> list[Bottleneck]:
    seconds = sum(step.seconds for step in steps)
    if profile.share(seconds) < NOTICED:
        return []
    kinds = ", ".join(_types(steps))
    text = f"{len(steps)} kernels only move data ({kinds}): {profile.share(seconds):.0%} of the time"
    return [Bottleneck("copies of non-contiguous data", text, fix(fixes.COPIES, COPIES), _names(steps), seconds)]


def _conversions(profile: Profile, steps: Sequence[Launch], fix: Fix) -> list[Bottleneck]:
    seconds = sum(step.seconds for step in steps)
    islands = [step for step in profile.steps if step.float32]
    found = []
    if profile.share(seconds) >= NOTICED:
        kinds = ", ".join(_types(steps))
        text = f"{len(steps)} kernels only change the format ({kinds}): {profile.share(seconds):.0%} of the time"
        advice = fix(fixes.LAYOUTS, CONVERSIONS.union(_types(steps)))
        found.append(Bottleneck("format conversions", text, advice, _names(steps), seconds))
    if islands:
        text = f"{len(islands)} kernels stay float32 among float16; the time excludes the conversions at their borders"
        found.append(Bottleneck("format conversions", text, fix(fixes.ISLANDS, _types(islands)), _names(islands)))
    return found


def _recompilation(facts: ShapeFacts, compiles: bool) -> list[Bottleneck]:
    found = []
    if facts.inputs:
        who = "every new shape is compiled" if compiles else "targets that compile (sdaa, cuda) compile every new shape"
        text = f"inputs of changing shape: {'; '.join(facts.inputs)}; {who}"
        fix = "export with fixed sizes, or pad to a few sizes and keep one engine for each"
        found.append(Bottleneck("recompilation by changing shapes", text, fix, facts.inputs))
    if facts.open_nodes:
        text = f"{len(facts.open_nodes)} nodes have data-dependent sizes"
        fix = "replace them by forms of fixed size (TopK of a constant, masks), or compute them on the host"
        found.append(Bottleneck("recompilation by changing shapes", text, fix, facts.open_nodes))
    return found


def _types(steps: Iterable[Launch]) -> list[str]:
    return sorted({step.op_type for step in steps})


def _names(steps: Iterable[Launch]) -> tuple[str, ...]:
    return tuple(step.name for step in sorted(steps, key=lambda step: -step.seconds))
