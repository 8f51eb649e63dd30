"""Comparison of two dumps, for example of one model on two machines."""

from __future__ import annotations

from collections.abc import Iterator

from engine import DataError
from engine.measures import OTHER_SHAPE, THRESHOLD, precision_of
from toolkit.compare.nodes import LIMIT, Comparison, Row, is_bad, note_masks, row_of
from toolkit.dump.store import GRAPH_INPUT, Dump, Entry
from toolkit.graph.masks import Masks
from toolkit.graph.nodes import Node


def compare_dumps(a: Dump, b: Dump, limit: float | None = None) -> Comparison:
    """Compare the tensors that the dump ``b`` to judge has in common with the reference ``a``.

    ``limit``: as of :class:`Comparison`. Raise DataError if there are none, or an array is damaged.
    """
    common = [name for name in b.outputs if name in a.outputs]
    if not common:
        raise DataError(
            f"{a.path} ({a.about.get('model')}) and {b.path} ({b.about.get('model')}) have no tensor in common: "
            "dumps of different models"
        )
    precision = precision_of(*(str(dump.about.get("dtype")) for dump in (a, b)))
    result = Comparison([], LIMIT[precision] if limit is None else limit)
    result.notes += _differences(a, b)
    masks = _masks(a, b)
    result.rows += [_row(a, b, a.outputs[name], b.outputs[name], precision, masks) for name in common]
    note_masks(result)
    result.notes += _other_inputs(result)
    result.rows.sort(key=lambda row: row.node.index)
    return result


def _differences(a: Dump, b: Dump) -> Iterator[str]:
    """Yield notes on the differences of the dumps as a whole."""
    if a.about.get("model_sha256") != b.about.get("model_sha256"):
        yield f"the dumps are of different files: {a.about.get('model')} and {b.about.get('model')}"
    for dump, other in ((a, b), (b, a)):
        if "recovered_from" in dump.about:
            yield f"{dump.path} was recovered from {dump.about['recovered_from']}"
        alone = [name for name in dump.outputs if name not in other.outputs]
        if alone:
            yield f"{len(alone)} tensors only in {dump.path}: {', '.join(alone[:3])}"


def _other_inputs(result: Comparison) -> Iterator[str]:
    """Yield notes on the inputs that differ between the dumps."""
    for row in result.rows:
        if row.node.op == GRAPH_INPUT and row.accumulated and is_bad(row.accumulated, result.limit):
            how = f"differs, diff2 {row.accumulated.diff2:.3g}" if row.value_stats else f"has {row.status}"
            yield f"the dumps have different inputs: {row.tensor!r} {how}"


def _row(a: Dump, b: Dump, wanted: Entry, found: Entry, precision: str, masks: Masks) -> Row:
    node = Node(found.index, found.name, found.op, (), (found.tensor,), found.module)
    if wanted.shape != found.shape:
        status = f"shape {list(found.shape)} is not the reference's {list(wanted.shape)}"
        return Row(node, found.tensor, status, found.dtype, found.shape, None, None, OTHER_SHAPE)
    reference, value = a.read(wanted), b.read(found)
    mask = masks.of(found.tensor, reference)
    return row_of(node, found.tensor, found.dtype, THRESHOLD[precision], reference, value, None, mask)


def _masks(a: Dump, b: Dump) -> Masks:
    """Return the masks stored in the dumps, updated with the reference's sinks; old dumps store none."""
    dump = a if "masks" in a.about else b
    try:
        masks = Masks.read(dump.about.get("masks", {}))
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{dump.path}: 'masks' of its manifest is invalid; dump again") from error
    for sink in masks.sinks:
        both = [a.tensors.get(name) for name in (sink.read, sink.written)]
        masks.see({entry.tensor: a.read(entry) for entry in both if entry is not None})
    return masks
