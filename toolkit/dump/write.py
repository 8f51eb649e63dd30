"""Run a model and dump the inputs and outputs of its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array
from engine.onnx import file_hash
from tecoinfer_modelzoo.progress import progress
from toolkit.dump.entries import GRAPH_INPUT, TensorPlace
from toolkit.dump.writer import Writer, open_writer
from toolkit.graph.masks import masks_of
from toolkit.graph.nodes import MEMORY, Node, grouped
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source


def write_dump(
    traced: Traced,
    inputs: Sequence[Array],
    nodes: Sequence[Node],
    out: Path,
    *,
    with_inputs: bool = True,
    memory: int = MEMORY,
) -> Dumped:
    """Run a model and write the tensors of the chosen nodes, and the model's inputs.

    Weights are not written, since the model contains them. float16 storage is written as float16.

    Args:
        traced: the model on a target. inputs: one array per input. nodes: nodes to dump.
        out: an .h5 file, or a folder for .npy files.
        with_inputs: also write the inputs of the nodes. memory: largest number of bytes of values held.

    Raises:
        ConfigError, DataError: ``out`` exists or cannot be written.
        InputError, ModelError, EngineError: the model cannot be run on these inputs.
    """
    sequences = _sequences(traced.nodes)
    sizes = traced.sizes(inputs)
    given = dict(zip([spec.name for spec in traced.inputs], inputs, strict=True))
    with open_writer(out, _about(traced)) as writer:
        for position, (name, array) in enumerate(given.items()):
            writer.add(TensorPlace(-1, GRAPH_INPUT, name, "", position, "output", 0, name), np.asarray(array))
        groups = list(grouped(nodes, sizes, memory))
        missing: list[str] = []
        for group in progress(groups, "group"):
            wanted = {place.tensor for node in group for place in _places(node, 0, with_inputs)}
            some = len(groups) > 1 or len(nodes) < len(traced.nodes)
            values = {**given, **traced.run(inputs, wanted if some else None)}
            for node in group:
                missing += _keep(writer, traced, node, sequences[node.index], values, with_inputs)
            del values  # frees memory before the next group
    return Dumped(writer, missing)


class Dumped:
    """Result: ``entries`` and header (``about``) of the dump, and outputs that the target does not provide."""

    def __init__(self, writer: Writer, missing: list[str]) -> None:
        self.entries, self.about, self.missing = writer.entries, writer.about, missing


def _sequences(nodes: Sequence[Node]) -> list[int]:
    seen: dict[str, int] = {}
    found = []
    for node in nodes:
        found.append(seen.get(node.op, 0))
        seen[node.op] = found[-1] + 1
    return found


def _about(traced: Traced) -> dict[str, Any]:
    return {
        "model": traced.path.name,
        "model_sha256": file_hash(traced.path),
        "target": traced.target,
        "dtype": traced.dtype,
        "nodes": len(traced.nodes),
        "masks": masks_of(source(traced.path).model).stored(),
    }


def _keep(
    writer: Writer, traced: Traced, node: Node, sequence: int, values: Mapping[str, Array], with_inputs: bool
) -> list[str]:
    """Write the tensors of a node; return the missing outputs."""
    missing = []
    for place in _places(node, sequence, with_inputs):
        value = values.get(place.tensor)
        if value is None:
            missing += [place.tensor] if place.slot == "output" else []
            continue
        with np.errstate(over="ignore"):
            writer.add(place, value.astype(np.float16) if place.tensor in traced.half else value)
    return missing


def _places(node: Node, sequence: int, with_inputs: bool) -> Iterator[TensorPlace]:
    for slot, names in (("input", node.inputs if with_inputs else ()), ("output", node.outputs)):
        for position, name in enumerate(names):
            if name:
                yield TensorPlace(node.index, node.op, node.name, node.module, sequence, slot, position, name)
