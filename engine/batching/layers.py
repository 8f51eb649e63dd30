"""Rules of layers: convolution, pooling, normalization, resizing, recurrent networks, attention, classical models."""

from __future__ import annotations

from engine.batching.elementwise import Labels, Rule, combine
from engine.batching.value import Call, Rows, Value, is_flat


def leading(*others: int) -> Rule:
    """Return the rule of operators with independent rows along axis 0 of input 0 and, optionally, of ``others``."""

    def rule(call: Call) -> list[Value]:
        _only_leading(call, 0, *others)
        return [call.out(_rows(call, 0, *others), i=i, rank=call.need(0).rank) for i, _ in enumerate(call.node.output)]

    return rule


def leading_any_rank(call: Call) -> list[Value]:
    """Rule of operators like :func:`leading` whose outputs have a different rank than the input."""
    _only_leading(call, 0)
    return [call.out(_rows(call, 0), i=i) for i, _ in enumerate(call.node.output)]


def table_rows(call: Call) -> list[Value]:
    """Rule of classical models: one row per sample; a single row is not a batch."""
    if call.rank() < 2:
        raise call.unknown()
    return leading_any_rank(call)


def _only_leading(call: Call, *places: int) -> None:
    """Reject samples on other axes than axis 0 of these inputs, and inputs that depend on the sample position."""
    for i, value in enumerate(call.inputs):
        if value is None or value.rows is None:
            continue
        if i not in places:
            raise call.unknown()
        if value.rows.axis != 0:
            raise call.mixes(value)
    rows = _rows(call, *places)
    for i in places:
        value = call.get(i)
        if rows is None or value is None or value.rows == rows:
            continue
        if value.rows is not None:
            raise call.pairs([value])
        if value.dims is None or value.dims[0] != call.fill(rows.size) or not is_flat(value, 0):
            raise call.by_position(value, depends=False)


def _rows(call: Call, *places: int) -> Rows | None:
    return next((value.rows for value in map(call.get, places) if value is not None and value.rows), None)


def pool(call: Call) -> list[Value]:
    """Rule of pooling: planes are independent; the second output counts elements from the first sample on."""
    value = call.need(0)
    if value.rows and value.rows.axis > 1:
        raise call.mixes(value)
    if len(call.node.output) > 1 and call.node.output[1]:
        raise call.fault("numbers elements through the whole batch", depends=True)
    return [call.out(value.rows, rank=value.rank)]


def batch_norm(call: Call) -> list[Value]:
    """Rule of BatchNormalization: in inference every channel is scaled by constants."""
    if call.attribute("training_mode", 0) or any(call.node.output[1:]):
        raise call.fault("is in training mode: it normalizes over the batch", depends=True)
    return leading()(call)


def resize(call: Call) -> list[Value]:
    """Rule of Resize and Upsample: the batch axis must keep its size."""
    value, rank = call.need(0), call.rank()
    if value.rows is None or call.attribute("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise call.unknown()
    if call.attribute("coordinate_transformation_mode", b"") == b"tf_crop_and_resize":
        raise call.unknown()
    axes = [call.axis(axis) for axis in call.attribute("axes", range(rank))]
    if value.rows.axis in axes:
        _check_resize(call, value, value.rows, axes.index(value.rows.axis), len(axes))
    return [call.out(value.rows, rank=rank)]


def _check_resize(call: Call, value: Value, rows: Rows, n: int, count: int) -> None:
    old = call.node.op_type == "Upsample" or call.tracer.opset < 11
    scales = call.attribute("scales") or call.content(1 if old else 2)
    sizes = None if old else call.content(3)
    if scales and len(scales) == count:
        unchanged = scales[n] == 1
    elif sizes and len(sizes) == count:
        unchanged = sizes[n] in (rows.size, call.fill(rows.size))
    else:
        raise call.fault("has sizes that are not constant", depends=False)
    if not unchanged:
        raise call.fault(f"resizes the batch axis of '{value.name}'", depends=True)


def recurrent(call: Call) -> list[Value]:
    """Rule of RNN, GRU and LSTM in both layouts; sequence lengths and initial states have a row per sample."""
    batch_first = bool(call.attribute("layout", 0))
    data: Labels = ("n", "t", "f") if batch_first else ("t", "n", "f")
    state: Labels = ("n", "d", "h") if batch_first else ("d", "n", "h")
    whole: Labels = ("n", "t", "d", "h") if batch_first else ("t", "d", "n", "h")
    for i in (1, 2, 3, 7):
        weights = call.get(i)
        if weights is not None and not weights.shared:
            raise call.unknown()
    operands = [(call.need(0), data), (call.get(4), ("n",)), (call.get(5), state), (call.get(6), state)]
    operands.append((call.get(2), ("d", "gates", "h")))  # only for the sizes
    results = []
    for i, name in enumerate(call.node.output):
        labels = whole if i == 0 else state
        results.append(combine(call, operands, labels, ("n",), i) if name else Value(""))
    return results


def attention(call: Call) -> list[Value]:
    """Rule of Attention: queries, keys, values and their past start with the batch; a mask broadcasts to 4 axes."""
    mask = call.get(3)
    if mask is not None and not _is_attention_mask(mask):
        raise call.unknown()
    places = [0, 1, 2, 4, 5, 6, *([3] if mask is not None and mask.rows else [])]
    _only_leading(call, *places)
    rows = _rows(call, *places)
    return [call.out(rows, i=i, rank=call.need(0).rank if i == 0 else 4) for i, _ in enumerate(call.node.output)]


def _is_attention_mask(mask: Value) -> bool:
    """Return whether a mask is the same for all samples, or starts with them as the scores do."""
    if mask.dims is None:
        return False
    return len(mask.dims) == 4 if mask.rows else len(mask.dims) != 4 or mask.dims[0] == 1


def rotary(call: Call) -> list[Value]:
    """Rule of RotaryEmbedding: positions per sample, or tables with a row per sample."""
    tables = [call.need(1), call.need(2)]
    if call.get(3) is not None:
        if any(not table.shared for table in tables):
            raise call.unknown()
        _only_leading(call, 0, 3)
    else:
        _only_leading(call, 0, 1, 2)
    return [call.out(_rows(call, 0), call.dims())]


def grid_sample(call: Call) -> list[Value]:
    """Rule of GridSample: an image with its own grid."""
    _only_leading(call, 0, 1)
    return [call.out(_rows(call, 0, 1), rank=call.need(0).rank)]


def roi_align(call: Call) -> list[Value]:
    """Rule of RoiAlign and MaxRoiPool: boxes contain sample numbers."""
    raise call.fault("selects samples by their number in the batch", depends=True)


def certain(clause: str) -> Rule:
    """Return the rule of operators that always combine samples."""

    def rule(call: Call) -> list[Value]:
        raise call.fault(clause, depends=True)

    return rule
