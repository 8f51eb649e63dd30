"""Embedding tables: constants in which a model looks up rows, which may exceed a SPA's memory.

They are found before any data is read, since a table too large for the card may be too large for the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from engine.sdaa.card import CardDescription
from tecoinfer_modelzoo.errors import DeviceOutOfMemory

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

NAMED = 4  # number of tables listed in an error, the largest first; the others are counted
FIXED = "the model's batch is fixed: export it with a smaller one"  # advice if only another model would fit
FLOATS = (1, 10)  # ``onnx.TensorProto``'s FLOAT and FLOAT16: stored in the dtype of the engine


class Table(NamedTuple):
    """A constant in which a model looks up rows."""

    name: str  # of the constant
    rows: int  # their number
    width: int  # elements of a row
    size: int  # bytes as the card stores it

    def __str__(self) -> str:
        return f"{self.name} {self.rows} x {self.width} ({megabytes(self.size)})"


def tables_of(model: ModelProto, half: bool) -> list[Table]:
    """Return the tables of a model as in its file, largest first; ``half``: floats are stored in float16."""
    from onnx import helper

    found = {node.input[0] for node in looked_up(model.graph)}
    tables = []
    for tensor in model.graph.initializer:
        if tensor.name in found and tensor.data_type:
            floats = 2 if half else 4
            width = floats if tensor.data_type in FLOATS else helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            row = prod(tensor.dims[1:])
            tables.append(Table(tensor.name, tensor.dims[0], row, tensor.dims[0] * row * int(width)))
    return sorted(tables, key=lambda table: (-table.size, table.name))


def looked_up(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes that look up rows of a constant by indices that are not constant, in the graph's order."""
    constants = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    return [
        node
        for node in graph.node
        if node.op_type == "Gather"
        and constants.get(node.input[0], 0) > 1
        and node.input[1] not in constants
        and not any(attribute.name == "axis" and attribute.i for attribute in node.attribute)
    ]


def check_tables(model: ModelProto, half: bool, card: CardDescription, count: int = 1, split: bool = False) -> None:
    """Raise DeviceOutOfMemory, with sizes and possible fixes, for tables beyond a SPA's memory (no data is read).

    Args:
        half: whether floats are stored in float16. count: number of SPA. split: whether the rows are split over them.
    """
    tables = tables_of(model, half)
    size = sum(table.size for table in tables) // (count if split else 1)
    if size > card.memory_bytes:
        over = f", split over {count} SPA," if split else ""
        raise DeviceOutOfMemory(
            f"SPA 0 of {card.name}: the tables{over} need {megabytes(size)}, free are {megabytes(card.memory_bytes)}; "
            f"{too_large(tables, half, card.memory_bytes, count, split)}"
        )


def too_large(tables: Sequence[Table], half: bool, memory: int, count: int = 1, split: bool = False) -> str:
    """Return the tables (largest first) that exceed ``memory`` bytes of a SPA, and fixes, as the end of a message."""
    rest, size = tables[NAMED:], sum(table.size for table in tables)
    more = [f"{len(rest)} more ({megabytes(sum(table.size for table in rest))})"] if rest else []
    help_ = ["train smaller tables (fewer rows to hash to, or narrower ones)"]
    if not split and count > 1 and size / count < memory:
        help_.insert(0, f"split their rows over the {count} SPA with --shard_tables")
    if not half and size / 2 / (count if split else 1) < memory:
        help_.insert(0, "use --dtype float16")
    return f"too large at any batch: {', '.join([*map(str, tables[:NAMED]), *more])}; {', or '.join(help_)}"


def megabytes(size: int) -> str:
    """Return a size in MB of 2**20 bytes."""
    return f"{size / 2**20:.0f} MB"
