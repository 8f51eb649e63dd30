"""Wrapper around onnx-ir and onnxscript, which implement the graph transformations of the passes.

Both are imported inside functions: they take longer to import than all other packages, and most runs use no pass.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.base import PassError
from engine.passes.options import short_reason

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

FOLD_INPUT_LIMIT = 8192
"""Maximum number of elements of an input of a folded node, so that weights are not multiplied by folding."""

FOLD_OUTPUT_LIMIT = 8192  # maximum number of elements of a tensor created by folding
_NODE_ELEMENTS = 32  # size of a node in a file in float32 elements; a fold may add this many


def edit(model: onnx.ModelProto, change: Callable[[ir.Model], None], name: str) -> onnx.ModelProto:
    """Return a new model after ``change`` modified its onnx-ir form; graph names, opsets and metadata are kept.

    Raises PassError with the ``name`` of the pass if the library does not support the model.
    """
    import onnx_ir as ir

    try:
        graph = ir.from_proto(model)
        change(graph)
        return ir.to_proto(graph)
    except PassError:
        raise
    except Exception as error:
        reason = f"{short_reason(error)}); run it without pass_path, or report the model"
        raise PassError(f"{name} does not support this model ({reason}") from error


def tidy(model: ir.Model) -> None:
    """Infer shapes, fold constants, and remove identities, inference dropout, duplicate and unused nodes, in place."""
    import onnx_ir.passes.common as common
    from onnxscript import optimizer

    names = [output.name for output in model.graph.outputs]
    common.InlinePass()(model)
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    with _quiet("onnxscript.optimizer._constant_folding"):  # warns about every node that it cannot fold
        optimizer.fold_constants_ir(
            model,
            onnx_shape_inference=True,
            input_size_limit=FOLD_INPUT_LIMIT,
            output_size_limit=FOLD_OUTPUT_LIMIT,
            should_fold=_worth_folding,
        )
    _drop_dropout(model)
    steps = (
        common.IdentityEliminationPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
    )
    with _quiet(common.DeduplicateInitializersPass.__module__):  # logs every weight that is an input or output
        for step in steps:
            step(model)
    # If one value was two outputs, the steps above give the second a generated name.
    for output, name in zip(model.graph.outputs, names, strict=True):
        output.name = name
    common.NameFixPass()(model)
    sweep(model)


def raise_opset(model: ir.Model, opset: int) -> None:
    """Convert a model to a newer version of the default operator set, in place; raise PassError on failure."""
    from onnx.helper import find_min_ir_version_for, make_opsetid
    from onnxscript import version_converter

    now = model.opset_imports.get("", 0)
    if now >= opset:
        return
    with _quiet(version_converter.__name__):  # warns about the choice of converter; checked below
        version_converter.ConvertVersionPass(opset, fallback=True)(model)
    if model.opset_imports.get("", 0) != opset:
        raise PassError(f"the opset {now} of the model cannot be raised; export it with opset_version={opset}")
    model.ir_version = max(model.ir_version, find_min_ir_version_for([make_opsetid("", opset)]))


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Disable a logger in the ``with`` block."""
    log = logging.getLogger(name)
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def _worth_folding(node: ir.Node) -> bool | None:
    """Reject folds whose result is larger than the inputs that become unused (Expand, Tile, shared weights)."""
    freed = sum(_elements(value) or 0 for value in node.inputs if value is not None and len(value.uses()) == 1)
    written = [_elements(value) for value in node.outputs]
    if any(size is not None and size > freed + _NODE_ELEMENTS for size in written):
        return False
    return None  # left to the library's rules


def _elements(value: ir.Value) -> int | None:
    if value.shape is None or not value.shape.is_static():
        return None
    return math.prod(value.shape.numpy())


def free_name(graph: ir.Graph, wanted: str) -> str:
    """Return ``wanted``, with underscores appended until no value of the graph has this name."""
    taken = {value.name for node in graph for value in node.outputs}
    taken |= {value.name for value in graph.inputs} | set(graph.initializers)
    while wanted in taken:
        wanted += "_"
    return wanted


def sweep(model: ir.Model) -> None:
    """Remove unused nodes, functions and weights, in place."""
    import onnx_ir.passes.common as common

    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)  # type: ignore[no-untyped-call]


def _drop_dropout(model: ir.Model) -> None:
    """Replace Dropout of opset 7 to 11, which is always inference, by Identity; the library handles later opsets."""
    import onnx_ir as ir

    if not 7 <= model.opset_imports.get("", 0) < 12:
        return
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        mask_needed = any(out.uses() or out.is_graph_output() for out in node.outputs[1:])
        if node.op_type == "Dropout" and node.domain == "" and node.graph is not None and not mask_needed:
            identity = ir.node("Identity", inputs=[node.inputs[0]], name=node.name)
            ir.convenience.replace_nodes_and_values(
                node.graph, node, [node], [identity], node.outputs[:1], identity.outputs
            )
