"""Test case of one node: its model, inputs, the baseline's outputs and a pytest file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, DataError, EngineError, ModelError
from toolkit.graph.inputs import Shapes
from toolkit.graph.nodes import load_named
from toolkit.graph.trace import traced
from toolkit.optest.cut import check_node, find_node, single_node
from toolkit.optest.outcome import DATA, MODEL, TARGETS, NodeTest, runs_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from toolkit.optest.outcome import Run

LIMIT = 2**30  # largest number of bytes of a case
_TEST = Path(__file__).resolve().parent / "test_case.py.tmpl"


def write_case(
    path: Path,
    wanted: str,
    out: Path,
    inputs: Sequence[Array],
    *,
    batch: int = 1,
    shapes: Shapes | None = None,
    targets: Sequence[str] = TARGETS,
) -> NodeTest:
    """Extract a node and write ``model.onnx``, ``data.npz`` and a pytest file that needs only the zoo.

    Args:
        path: the ONNX file. wanted: the node (:func:`find_node`). out: output folder.
        inputs: of the whole model, which runs once on the float32 baseline to compute the inputs of the node.
        batch, shapes: as for :func:`toolkit.graph.trace.traced`. targets: targets of the case.

    Raises:
        ConfigError: the node does not exist. TargetError: a target is unknown.
        ModelError: an input or output of the node is not an array of numbers, they exceed :data:`LIMIT`, or the
            baseline cannot run the model.
        DataError: the folder cannot be written.
    """
    model = load_named(path)
    node = find_node(model, wanted, path)
    values = _values(path, model, node, inputs, batch, shapes)
    cut = single_node(model, node, values)
    feed = {info.name: values[info.name] for info in cut.graph.input}
    answer = {info.name: values[info.name] for info in cut.graph.output}
    arrays = {f"in{i}": array for i, array in enumerate(feed.values())}
    arrays |= {f"out{i}": array for i, array in enumerate(answer.values())}
    runs = runs_of(targets, arrays.values())
    name = f"test_{re.sub(r'[^A-Za-z0-9]+', '_', node.name).strip('_').lower() or 'node'}.py"
    test = out / name
    other = next((file.name for file in sorted(out.glob("test_*.py")) if file.name != name), None)
    if other is not None:
        raise DataError(f"{out} contains another case ({other}); choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / MODEL).write_bytes(cut.SerializeToString())
        np.savez(out / DATA, **arrays)  # type: ignore[arg-type]
        test.write_text(_source(path, node, runs), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror}; choose another --out") from error
    return NodeTest(out, node.name, node.op_type, test, feed, answer, runs)


def _values(
    path: Path, model: ModelProto, node: NodeProto, inputs: Sequence[Array], batch: int, shapes: Shapes | None
) -> dict[str, Array]:
    """Return the inputs and outputs of the node on the baseline."""
    from engine.onnx import tensor_bytes, used_names

    needed = {*used_names(node), *filter(None, node.output)}
    with traced(path, "onnx", dtype="float32", batch=batch, shapes=shapes, only=needed) as run:
        check_node(node, run)
        sizes = run.sizes(inputs)
        total = sum(sizes.get(name, 0) for name in needed)
        total += sum(tensor_bytes(tensor) for tensor in model.graph.initializer if tensor.name in needed)
        if total > LIMIT:
            raise ModelError(
                f"node {node.name!r} reads and writes {total / 2**20:.0f} MiB, the limit is {LIMIT / 2**20:.0f}; "
                "pass a smaller --shape or --batch_size, or choose another node"
            )
        try:
            values = run.run(inputs)
        except (ModelError, EngineError) as error:
            raise type(error)(f"{error}; a case needs the baseline's values") from error
        values |= dict(zip([spec.name for spec in run.inputs], run.feed(inputs), strict=True))
    return values


def _source(path: Path, node: NodeProto, runs: Sequence[Run]) -> str:
    def plain(text: str) -> str:
        return re.sub(r'[\\"\r\n\x00-\x1f]', "_", text)

    words = {"op": plain(node.op_type), "node": plain(node.name), "model": plain(path.name), "runs": repr(runs)}
    return Template(_TEST.read_text(encoding="utf-8")).substitute(words)
