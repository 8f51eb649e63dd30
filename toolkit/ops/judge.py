"""Support of a model's operators on a target, by a support table and by trials."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ConfigError, ModelError
from toolkit.graph.inputs import Dims, Shapes, input_shapes
from toolkit.ops.needs import Need, find_needs, op_name
from toolkit.ops.table import LACKING, LEVELS, Support, Table

if TYPE_CHECKING:
    from onnx import ModelProto

    from toolkit.ops.rewrites import Rewrite
    from toolkit.ops.trial import Trial

CUSTOM = (
    "write it as a custom operator: decompose it into standard operators at export (example/custom_op), or ask the "
    "vendor of the target for a kernel"
)
CASE = f"{CUSTOM} ('teco optest' makes the test case)"
HOST = "compute it on the host: export the model without it, and add it to the pre- or postprocessing"
_HOST_DTYPES = ("string", "sequence", "optional", "map", "sparse_tensor")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Support of an operator on a target."""

    need: Need  # the operator with its dtypes and attributes
    level: str  # one of ``LEVELS``
    source: str  # evidence
    fix: str = ""  # advice, or ""
    rewrite: Rewrite | None = None  # a verified equivalent
    dtype: str = ""  # the unsupported dtype, if it is not the operator

    @property
    def lacks(self) -> str:
        """Name of the unsupported operator, with its dtype if that is the reason."""
        return f"{self.need.op} in {self.dtype}" if self.dtype else self.need.op

    @property
    def dynamic(self) -> bool:
        """Whether an output has data-dependent sizes."""
        return any(re.search(r"[^\dx, ]", shape.replace("scalar", "")) for shape in self.need.shapes)


def judge_file(
    path: Path,
    table: Table,
    batch: int = 1,
    shapes: Shapes | None = None,
    trial: Trial | None = None,
    dims: Dims | None = None,
) -> tuple[list[Judgement], list[str]]:
    """Judge every operator of an ONNX file; return the judgements and notes.

    Args:
        path: the file. table: of the target.
        batch, shapes, dims: sizes of dynamic dimensions; missing sizes are allowed and leave shapes unknown.
        trial: tries a model on the target; ``None`` uses the table only.

    Raise ModelError if the file cannot be read.
    """
    from toolkit.graph.nodes import load_named

    model, notes = _shaped(load_named(path), batch, shapes, dims)
    found = judge(model, table, trial)
    return found, notes or dynamic_notes(found)


def dynamic_notes(found: Iterable[Judgement]) -> list[str]:
    """Return a note on the operators with data-dependent output sizes."""
    dynamic = dict.fromkeys(one.need.op for one in found if one.dynamic)
    return [f"outputs with data-dependent sizes: {', '.join(dynamic)}"] if dynamic else []


def _shaped(model: ModelProto, batch: int, shapes: Shapes | None, dims: Dims | None) -> tuple[ModelProto, list[str]]:
    """Return a model with inferred shapes, and notes on unknown ones."""
    from engine.onnx import bind_shapes, infer_shapes

    try:
        return bind_shapes(model, dict(input_shapes(model, batch, shapes, dims))), []
    except (ConfigError, ModelError) as error:  # dynamic sizes, or sequences among the inputs
        if shapes or dims:
            raise
        notes = [f"some shapes are unknown: {error}"]
    try:
        return infer_shapes(model), notes
    except ModelError:
        return model, notes


def judge(model: ModelProto, table: Table, trial: Trial | None = None) -> list[Judgement]:
    """Judge every operator of a model with inferred shapes, including the bodies of If, Loop and Scan."""
    return [_judged(model, need, table, trial) for need in find_needs(model)]


def _judged(model: ModelProto, need: Need, table: Table, trial: Trial | None) -> Judgement:
    cut = _cut(model, need)
    refused = trial(cut) if trial is not None and cut is not None and not _has_body(need) else None
    support = _support(need, table, refused)
    if not support.lacking:
        return Judgement(need, support.level, support.source, support.fix)
    dtype = next((name for name in need.dtypes if table.dtypes.get(name) is support), "")
    rewrite = _rewrite(cut, table, trial)
    fix = support.fix or (_advice(need, refused) if rewrite is None else _rewrite_text(rewrite))
    return Judgement(need, support.level, support.source, fix, rewrite, dtype)


def _rewrite_text(rewrite: Rewrite) -> str:
    operators = ", ".join(rewrite.operators)
    return f"rewrite it {rewrite.name}: {operators} (error {rewrite.error:.2g} compared with {rewrite.against})"


def _has_body(need: Need) -> bool:
    from engine.onnx import subgraphs

    return need.first is not None and any(True for _ in subgraphs(need.first))


def _support(need: Need, table: Table, refused: str | None) -> Support:
    """Return the worst support of operator, dtypes and trial, whose error is ``refused`` (``None``: not tried)."""
    entry = table.operator(need.op)
    known = [table.dtypes[name] for name in need.dtypes if name in table.dtypes]
    worst = max(known, key=lambda one: LEVELS.index(one.level), default=None)
    lacking = [one for one in (entry, worst) if one is not None and one.lacking]
    if lacking:
        return lacking[0]
    if need.end:
        return Support("host", f"{need.end!r} is an input or output of the model but not a tensor")
    if refused:
        return Support("missing", refused)
    return _listed(need, table, entry, refused)


def _listed(need: Need, table: Table, entry: Support | None, refused: str | None) -> Support:
    """Return the support of an operator without a known problem."""
    if entry is None:
        return _tried(need, table, refused)
    unlisted = [name for name in need.dtypes if name not in table.dtypes]
    if unlisted and table.dtypes:
        return Support(_tried(need, table, refused).level, f"{entry.source}, but not in {', '.join(unlisted)}")
    return entry


def _tried(need: Need, table: Table, refused: str | None) -> Support:
    """Return the support found by the trial."""
    good = "simulated" if table.simulated else "tried"
    if _has_body(need):
        return Support(good, "not in the table; the operators in its body are judged separately")
    if refused is None:
        return Support("unknown", "not in the table, and it could not be tried")
    return Support(good, "not in the table; the target's engine ran it")


def _cut(model: ModelProto, need: Need) -> ModelProto | None:
    from toolkit.optest.cut import single_node, typed

    if need.first is None:
        return None
    try:
        cut = single_node(model, need.first, scope=need.scope)
    except ModelError:
        return None
    for info in cut.graph.output:
        known = need.scope.get(info.name)
        if known is not None and hasattr(known, "type"):
            info.CopyFrom(known)
    try:
        return typed(cut)
    except ModelError:
        return cut


def _rewrite(cut: ModelProto | None, table: Table, trial: Trial | None) -> Rewrite | None:
    """Return an equivalent of a single node on the target, or ``None``."""
    from toolkit.ops.rewrites import find_rewrite

    if cut is None or trial is None:
        return None

    def runs(made: ModelProto) -> str:
        for node in made.graph.node:
            entry = table.operator(op_name(node))
            if entry is not None and entry.lacking:
                return f"{op_name(node)} is {entry.level}"
        return trial(made) or ""

    return find_rewrite(cut, runs)


def rewrite_of(path: Path, name: str, like: Judgement, table: Table, trial: Trial) -> Rewrite | None:
    """Return a verified equivalent of another node that needs the same operator as a judged one, or ``None``.

    Args:
        path: the file. name: of a node of its main graph. like: judgement of such a node. table, trial: of the target.
    """
    from toolkit.graph.nodes import load_named

    model, _ = _shaped(load_named(path), 1, None, None)
    node = next((one for one in model.graph.node if one.name == name), None)
    return None if node is None else _rewrite(_cut(model, replace(like.need, first=node)), table, trial)


def _advice(need: Need, refused: str | None) -> str:
    if any(name in _HOST_DTYPES for name in need.dtypes):
        return HOST
    return CUSTOM if refused else CASE


def summary(findings: Sequence[Judgement], target: str) -> str:
    """Return the result in one sentence."""
    lacking = dict.fromkeys(one.lacks for one in findings if one.level in LACKING)
    levels = Counter(one.level for one in findings)
    words = {"host": "for the host"}
    known = ", ".join(f"{levels[level]} {words.get(level, level)}" for level in LEVELS if levels[level])
    if lacking:
        return f"{target} lacks {', '.join(lacking)} ({known})"
    if levels["unknown"]:
        return f"the support of some operators on {target} is unknown ({known})"
    return f"{target} supports all operators of the model ({known or 'it has none'})"
