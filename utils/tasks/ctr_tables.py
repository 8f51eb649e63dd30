"""Do a click model's tables have a row for every number that its stored features may make?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine import ModelError
from utils.preprocess.features import NOTE, NUMBERED, Features

if TYPE_CHECKING:
    from onnx import ModelProto

MOST = 64 << 20
"""Bytes of a file that is looked into: more would take longer than the first call. Weights beside it are not read."""


def refuse_short_tables(features: Features, ckpt: Path) -> None:
    """Refuse a model that looks up an input's numbers in a table with fewer rows than its fields need.

    Only tables that are read by a whole input, as it comes, are told of; of others the runtime tells at the first
    number that is too large.

    Raises:
        ModelError: it names the table, its rows, the field and the fix.
    """
    needed = {
        name: max(((one.offset + one.rows, one.name) for one in fields if one.kind in NUMBERED), default=(0, ""))
        for name, fields in features.inputs.items()
    }
    model = _read(ckpt)
    if model is None:
        return
    rows = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) > 1}
    for node in model.graph.node:
        if node.op_type != "Gather" or len(node.input) != 2 or any(one.i for one in node.attribute):
            continue
        table, given = node.input
        most, field = needed.get(given, (0, ""))
        if table in rows and most > rows[table]:
            raise ModelError(
                f"{ckpt}: table {table!r} has {rows[table]} rows, and field {field!r} of its metadata {NOTE!r} needs "
                f"{most} (offset and size); store the size that the model was trained with, and export it again"
            )


def _read(path: Path) -> ModelProto | None:
    """Return a model without its external data; ``None`` where it is no ONNX file, or a large one."""
    import onnx  # the engines have read the file
    from google.protobuf.message import DecodeError

    try:
        if path.stat().st_size > MOST:
            return None
        return onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, OSError):  # a saved engine
        return None
