"""A model's needs against a target's support table: what runs, what is missing, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    "write it as a custom operator: spell it out in standard operators at export (example/custom_op), or have the "
    "target's owner add a kernel"
)
CASE = f"{CUSTOM} ('teco optest' makes the test case)"
HOST = "keep it on the host: export the model without it, and compute it in the pre- or postprocessing"
_HOST_DTYPES = ("string", "sequence", "optional", "map", "sparse_tensor")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a target makes of a need.

    Attributes:
        need: an operator in one form. level: a word of ``LEVELS``.
        source: how that is known. fix: what to do, "" where nothing is to be done.
        rewrite: the equivalent offered, tried on random input. dtype: the type at fault, where it is not the operator.
        dynamic: whether sizes follow from data, so that the card cannot plan for them.
    """

    need: Need
    level: str
    source: str
    fix: str = ""
    rewrite: Rewrite | None = None
    dtype: str = ""

    @property
    def lacks(self) -> str:
        """What a target lacks that lacks it: the operator, or the operator in a type."""
        return f"{self.need.op} in {self.dtype}" if self.dtype else self.need.op

    @property
    def dynamic(self) -> bool:
        """Whether the shape of something it writes is not known beforehand."""
        return any(re.search(r"[^\dx, ]", shape.replace("scalar", "")) for shape in self.need.shapes)


def judge_file(
    path: Path,
    table: Table,
    batch: int = 1,
    shapes: Shapes | None = None,
    trial: Trial | None = None,
    dims: Dims | None = None,
) -> tuple[list[Judgement], list[str]]:
    """Judge every operator of an ONNX file; return that and what is to be said about it.

    Args:
        path: the file. table: of the target. batch, shapes, dims: for dynamic dimensions; where sizes are left open
            the shapes stay unknown, which is no error.
        trial: asks the target; ``None`` goes by the table alone.

    Raises:
        ModelError: the file cannot be read.
    """
    from toolkit.graph.nodes import load_named

    model, notes = _shaped(load_named(path), batch, shapes, dims)
    found = judge(model, table, trial)
    return found, notes or dynamic_notes(found)


def dynamic_notes(found: Iterable[Judgement]) -> list[str]:
    """Say which operators write sizes that are not known beforehand."""
    dynamic = dict.fromkeys(one.need.op for one in found if one.dynamic)
    return [f"sizes not known beforehand are written by: {', '.join(dynamic)}"] if dynamic else []


def _shaped(model: ModelProto, batch: int, shapes: Shapes | None, dims: Dims | None) -> tuple[ModelProto, list[str]]:
    """Return a model with shapes as far as they are known, and what is not."""
    from engine.onnx import bind_shapes, infer_shapes

    try:
        return bind_shapes(model, dict(input_shapes(model, batch, shapes, dims))), []
    except (ConfigError, ModelError) as error:  # open sizes, or sequences among the inputs
        if shapes or dims:
            raise
        notes = [f"shapes are not all known: {error}"]
    try:
        return infer_shapes(model), notes
    except ModelError:
        return model, notes


def judge(model: ModelProto, table: Table, trial: Trial | None = None) -> list[Judgement]:
    """Judge every operator of a model whose shapes have been inferred, those in the bodies of If, Loop and Scan too."""
    return [_judged(model, need, table, trial) for need in find_needs(model)]


def _judged(model: ModelProto, need: Need, table: Table, trial: Trial | None) -> Judgement:
    cut = _cut(model, need)
    refused = trial(cut) if trial is not None and cut is not None and not _has_body(need) else None
    support = _support(need, table, refused)
    if not support.lacking:
        return Judgement(need, support.level, support.source, support.fix)
    dtype = next((name for name in need.dtypes if table.dtypes.get(name) is support), "")
    rewrite = _rewrite(cut, table, trial)
    fix = support.fix or (_advice(need, refused) if rewrite is None else _told(rewrite))
    return Judgement(need, support.level, support.source, fix, rewrite, dtype)


def _told(rewrite: Rewrite) -> str:
    operators = ", ".join(rewrite.operators)
    return f"rewrite it {rewrite.name}: {operators} (error {rewrite.error:.2g} against {rewrite.against})"


def _has_body(need: Need) -> bool:
    from engine.onnx import subgraphs

    return need.first is not None and any(True for _ in subgraphs(need.first))


def _support(need: Need, table: Table, refused: str | None) -> Support:
    """Return the worst of what is known of the operator, its dtypes, and the target's own answer.

    Args:
        refused: why the target cannot run it, "" where it can; ``None`` where it was not tried.
    """
    entry = table.operator(need.op)
    known = [table.dtypes[name] for name in need.dtypes if name in table.dtypes]
    worst = max(known, key=lambda one: LEVELS.index(one.level), default=None)
    lacking = [one for one in (entry, worst) if one is not None and one.lacking]
    if lacking:
        return lacking[0]
    if need.end:
        return Support("host", f"{need.end!r} goes in or out of the model and is no tensor: engines take arrays")
    if refused:
        return Support("missing", refused)
    return _listed(need, table, entry, refused)


def _listed(need: Need, table: Table, entry: Support | None, refused: str | None) -> Support:
    """Return what is known of an operator that nothing speaks against."""
    if entry is None:
        return _tried(need, table, refused)
    unlisted = [name for name in need.dtypes if name not in table.dtypes]
    if unlisted and table.dtypes:
        return Support(_tried(need, table, refused).level, f"{entry.source}, but not in {', '.join(unlisted)}")
    return entry


def _tried(need: Need, table: Table, refused: str | None) -> Support:
    """Return what a trial by itself says."""
    good = "simulated" if table.simulated else "tried"
    if _has_body(need):
        return Support(good, "not in the table; what is in its body is judged by itself")
    if refused is None:
        return Support("unknown", "not in the table, and it could not be tried")
    return Support(good, "not in the table; the target's engine took it")


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
    """Return what stands for a single node on the target; ``None`` without the node or somebody to ask, too."""
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


def _advice(need: Need, refused: str | None) -> str:
    if any(name in _HOST_DTYPES for name in need.dtypes):
        return HOST
    return CUSTOM if refused else CASE


def summary(findings: Sequence[Judgement], target: str) -> str:
    """Return the answer in a sentence."""
    lacking = dict.fromkeys(one.lacks for one in findings if one.level in LACKING)
    levels = Counter(one.level for one in findings)
    words = {"host": "for the host"}
    known = ", ".join(f"{levels[level]} {words.get(level, level)}" for level in LEVELS if levels[level])
    if lacking:
        return f"{target} lacks {', '.join(lacking)} ({known})"
    if levels["unknown"]:
        return f"whether {target} has everything the model needs is not known ({known})"
    return f"{target} has everything the model needs ({known or 'which is nothing'})"
