"""A model's needs against a target's support table: what runs, what is missing, and what to do about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.base import ConfigError, ModelError, TecoInferError
from toolkit.inputs import Shapes, input_shapes
from toolkit.ops.needs import Need, find_needs, op_name
from toolkit.ops.table import LEVELS, Support, Table

if TYPE_CHECKING:
    from onnx import ModelProto

    from toolkit.ops.rewrites import Rewrite

CUSTOM = (
    "write it as a custom operator: spell it out in standard operators at export (example/custom_op), or have the "
    "target's owner add a kernel ('teco optest' makes the test case)"
)
HOST = "keep it on the host: export the model without it, and compute it in the pre- or postprocessing"
_HOST_DTYPES = ("string", "sequence", "optional", "map", "sparse_tensor")


@dataclass(frozen=True, slots=True)
class Finding:
    """What a target makes of a need.

    Attributes:
        need: an operator in one form. level: a word of ``LEVELS``.
        source: how that is known. fix: what to do, "" where nothing is to be done.
        rewrite: the equivalent offered, tried on random input.
        dynamic: whether sizes follow from data, so that the card cannot plan for them.
    """

    need: Need
    level: str
    source: str
    fix: str = ""
    rewrite: Rewrite | None = None

    @property
    def dynamic(self) -> bool:
        """Whether the shape of something it writes is not known beforehand."""
        return any(re.search(r"[^\dx, ]", shape.replace("scalar", "")) for shape in self.need.shapes)


def judge_file(path: Path, table: Table, batch: int = 1, shapes: Shapes | None = None) -> list[Finding]:
    """Judge every operator of an ONNX file.

    Args:
        path: the file. table: of the target. batch, shapes: for dynamic dimensions; where sizes are left open the
            shapes stay unknown, which is no error.

    Raises:
        ModelError: the file cannot be read.
    """
    from toolkit.intermediates import load_named

    return judge(_shaped(load_named(path), batch, shapes), table)


def _shaped(model: ModelProto, batch: int, shapes: Shapes | None) -> ModelProto:
    import onnx

    from engine.onnx_graph import bind_shapes, infer_shapes

    try:
        return bind_shapes(model, dict(input_shapes(model, batch, shapes)))
    except (ConfigError, ModelError):  # open sizes, or sequences among the inputs: as far as types and shapes go
        if shapes:
            raise
    try:
        return infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model


def judge(model: ModelProto, table: Table) -> list[Finding]:
    """Judge every operator of a model whose shapes have been inferred."""
    return [_judged(model, need, table) for need in find_needs(model)]


def _judged(model: ModelProto, need: Need, table: Table) -> Finding:
    cut = None if need.inner else _cut(model, need)
    refused = _refused(cut) if cut is not None else None
    support = _support(need, table, refused)
    if support.level not in ("host", "missing"):
        return Finding(need, support.level, support.source, support.fix)
    rewrite = _rewrite(cut, table) if cut is not None else None
    if rewrite is not None:
        operators = ", ".join(rewrite.operators)
        fix = f"rewrite it {rewrite.name}: {operators} (error {rewrite.error:.2g} against {rewrite.against})"
        return Finding(need, support.level, support.source, support.fix or fix, rewrite)
    return Finding(need, support.level, support.source, support.fix or _advice(need))


def _support(need: Need, table: Table, refused: str | None) -> Support:
    """Return the worst of what is known of the operator, its dtypes, and the simulated card's answer.

    Args:
        refused: why the engine cannot run it; ``None`` where it was not tried (in a body, or of unknown dtypes).
    """
    entry = table.operator(need.op)
    known = [table.dtypes[name] for name in need.dtypes if name in table.dtypes]
    if entry is not None and entry.level in ("host", "missing"):
        return entry
    worst = max(known, key=lambda one: LEVELS.index(one.level), default=None)
    if worst is not None and worst.level in ("host", "missing"):
        return worst
    if refused:
        return Support("missing", refused)
    unlisted = [name for name in need.dtypes if name not in table.dtypes]
    if entry is None:
        tried = "not tried" if refused is None else "the engine has a kernel for it"
        return Support("simulated", f"not in the table; {tried}")
    if unlisted or entry.level == "simulated":
        return Support("simulated", f"{entry.source}, but not in {', '.join(unlisted)}" if unlisted else entry.source)
    return entry


def _cut(model: ModelProto, need: Need) -> ModelProto | None:
    from toolkit.optest import single_node, typed

    if need.first is None:
        return None
    try:
        cut = single_node(model, need.first)
    except ModelError:
        return None
    known = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    for info in cut.graph.output:
        if info.name in known:
            info.CopyFrom(known[info.name])
    try:
        return typed(cut)
    except ModelError:
        return cut


def _refused(cut: ModelProto) -> str:
    """Return why no kernel takes a node, or "" where one does."""
    from engine.ort import HostSession

    try:
        HostSession(cut, threads=1)
    except TecoInferError as error:
        return str(error).partition("failed:")[2] or str(error)
    return ""


def _rewrite(cut: ModelProto, table: Table) -> Rewrite | None:
    from toolkit.ops.rewrites import find_rewrite

    def runs(made: ModelProto) -> str:
        for node in made.graph.node:
            entry = table.operator(op_name(node))
            if entry is not None and entry.level in ("host", "missing"):
                return f"{op_name(node)} is {entry.level}"
        return _refused(made)

    return find_rewrite(cut, runs)


def _advice(need: Need) -> str:
    if any(name in _HOST_DTYPES for name in need.dtypes):
        return HOST
    return CUSTOM


def summary(findings: Sequence[Finding], target: str) -> str:
    """Return the answer in a sentence."""
    lacking = [one for one in findings if one.level in ("host", "missing")]
    levels = Counter(one.level for one in findings)
    known = f"{levels['stated']} stated, {levels['simulated']} simulated"
    if not lacking:
        return f"{target} has everything the model needs ({known})"
    names = ", ".join(dict.fromkeys(one.need.op for one in lacking))
    return f"{target} lacks {names} ({known}, {levels['host']} for the host, {levels['missing']} missing)"
