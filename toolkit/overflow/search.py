"""Run of a data set in float32 and in the card's storage, with counts per node."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import Array, ConfigError, TensorSpec
from tecoinfer_modelzoo.progress import progress
from toolkit.fix.records import Feed
from toolkit.fix.samples import PLANS, in_parts
from toolkit.fix.wide import float32_file
from toolkit.graph.inputs import Shapes, batched_specs
from toolkit.graph.masks import Masks, masks_of, see_sinks
from toolkit.graph.nodes import MEMORY, Node, load_named
from toolkit.graph.trace import Traced, traced
from toolkit.overflow.ranges import NodeRange, Values, count

if TYPE_CHECKING:
    from typing_extensions import Self


def find_overflow(path: Path, parts: Iterable[Feed], batch: int, pass_path: Path | None = None) -> list[NodeRange]:
    """Run a model over a data set in float32 and in the card's float16 storage, and return all nodes in order.

    Args:
        path: the ONNX file. batch: samples per call.
        parts: inputs over the data set, of one or several shapes; the card's form is made for each shape.
        pass_path: pass file of the float16 form; its ``skip_ops`` stay float32.

    Raises:
        ModelError, InputError, PassError: the model cannot be run on these samples.
        ConfigError: calls have too many shapes.
    """
    with tempfile.TemporaryDirectory(prefix="teco-overflow-") as folder:
        wide = traced(float32_file(path, Path(folder)), "onnx", dtype="float32", batch=batch)
    with wide, _Cards(path, batch, pass_path) as cards:
        model = load_named(path)
        specs = batched_specs(model)
        masks = masks_of(model)
        found = [NodeRange(node) for node in wide.nodes]
        axis = next((spec.batch_axis for spec in specs if spec.batch_axis is not None), 0)
        for full, names in _calls(progress(parts, "batch"), specs, batch):
            card = cards.of({spec.name: array.shape for spec, array in zip(wide.inputs, full, strict=True)})
            masks.forget()
            for nodes, only in _groups(wide, full, masks):
                both = wide.run(full, only), card.run(full, only)
                masks.see(both[0])
                values = Values(*both, batch, axis, len(names), card.half, masks)
                for node in nodes:
                    count(found[node.index], values, names)
    return found


def _calls(
    parts: Iterable[Feed], specs: Sequence[TensorSpec], batch: int
) -> Iterator[tuple[list[Array], Sequence[str]]]:
    """Yield the inputs of each call, and the names of its samples."""
    for part in parts:
        names = part.names
        for full in in_parts(part.inputs, specs, batch):
            yield full, names[:batch]
            names = names[batch:] or names


class _Cards:
    """The card's form of a model for each shape of its calls; a context manager."""

    def __init__(self, path: Path, batch: int, pass_path: Path | None) -> None:
        self._path, self._batch, self._pass_path = path, batch, pass_path
        self._open: dict[tuple[tuple[int, ...], ...], Traced] = {}

    def of(self, shapes: Shapes) -> Traced:
        """Return the form for these shapes by input name."""
        key = tuple(shapes.values())
        if key not in self._open:
            if len(self._open) == PLANS:
                raise ConfigError(
                    f"calls have more than {PLANS} shapes, such as {', '.join(map(str, key))}, and the card needs a "
                    "plan for each; pad them to a few sizes: --dim NAME=64,128"
                )
            how: dict[str, Any] = {"batch": self._batch, "pass_path": self._pass_path, "shapes": shapes}
            self._open[key] = traced(self._path, "sdaa", dtype="float16", **how)
        return self._open[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for card in self._open.values():
            card.close()


def _groups(wide: Traced, inputs: list[Array], masks: Masks) -> Iterator[tuple[Sequence[Node], set[str] | None]]:
    """Yield groups of nodes, and the tensors they need (``None``: all); of several, sinks of masks are first."""
    groups = wide.groups(inputs)
    if len(groups) < 2:
        yield wide.nodes, None
        return
    see_sinks(masks, wide, inputs, MEMORY)
    for group in groups:
        yield group, {name for node in group for name in (*node.inputs, *node.outputs)}
