"""One large graph with node classes: Planetoid's files, OGB's folders, or one ``.npz`` file.

The ``.npz`` file of N nodes, without pickled content:

- ``x``: N x F numbers. ``edges``: 2 x E integers, source and target, counted from 0 (also ``edge_index``).
- ``y``: N integers, the class of each node, -1 if unknown. ``classes``: their names.
- ``train_mask``, ``val_mask``, ``test_mask``: N booleans. ``names``: N texts.
- ``image``: height and width, if a row of ``x`` is an image of values from 0 to 1; nodes are then drawn as images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import did_you_mean, shown_value
from utils.arrays import read_npz
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.graphs.files import SPLITS, TEST, Graph, Labelled, checked, with_reverse_edges

ALL = "all"
"""Value of ``--split`` for all nodes, or all nodes with a class if answers are compared."""

FIX = "save it with np.savez(file, x=..., edges=..., y=..., train_mask=..., val_mask=..., test_mask=...)"
GRAPH = "graph"
"""Key of the :class:`NodeGraph` in the notes of a data set."""


class NodeGraph:
    """A graph in memory; other processes read it again from its path, a file or folder."""

    def __init__(self, path: Path, found: Labelled, files: Sequence[Path]) -> None:
        self.path, self.found, self.files = path, found, tuple(files)
        self._both: Graph | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return read_node_graph, (self.path,)

    def __len__(self) -> int:
        return len(self.found.labels)

    def edges(self, both: bool) -> Array:
        """Return int64 [2, E]: the edges as stored, or in both directions; without duplicates and loops."""
        graph = self.found.graph
        if both:
            self._both = self._both or with_reverse_edges(graph)
            graph = self._both
        source, target = graph.edges
        keys = np.unique((target * len(self) + source)[source != target])
        return np.stack([keys % len(self), keys // len(self)])

    def name(self, number: int) -> str:
        """Return the name of a node in reports."""
        return self.found.names[number] if self.found.names else f"node {number}"


class Node(NamedTuple):
    """A sample: a node of a graph."""

    graph: NodeGraph
    number: int


class Nodes(Sequence[Node]):
    """Some nodes of a graph, created on access."""

    def __init__(self, graph: NodeGraph, numbers: Array) -> None:
        self.graph, self.numbers = graph, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Node: ...
    @overload
    def __getitem__(self, place: slice) -> Nodes: ...
    def __getitem__(self, place: int | slice) -> Node | Nodes:
        if isinstance(place, slice):
            return Nodes(self.graph, self.numbers[place])
        return Node(self.graph, int(self.numbers[place]))


def load_nodes(path: Path, split: str, wanted: Sequence[str] | None = None, *, compared: bool = True) -> ListDataset:
    """Return the nodes of a part of a graph, each with its class; the note :data:`GRAPH` is the graph.

    Args:
        path: as for :func:`read_node_graph`.
        split: one of :data:`SPLITS`, or :data:`ALL`.
        wanted: numbers (``17``, ``20-29``) or names of nodes, instead of the part; unknown ones are rejected.
        compared: whether answers are compared with classes; then nodes of the part without a class are rejected.

    Raises DataError if the graph cannot be read or has no edges, or no node is selected.
    """
    graph = read_node_graph(path)
    numbers, rejected = _chosen(graph, split, compared) if wanted is None else _named(graph, wanted)
    if not len(numbers):
        why = f"no node is in its part {split!r}; try --split {ALL}"
        if rejected:
            why = f"{rejected[0].path}: {rejected[0].reason}"
        raise DataError(f"{path}: {why}")
    labels = graph.found.labels[numbers]
    known = bool((labels >= 0).all())
    return ListDataset(
        Nodes(graph, numbers),
        labels.tolist() if known else None,
        names=[graph.name(number) for number in numbers.tolist()],
        files=graph.files,
        rejected=rejected,
        notes={GRAPH: graph},
    )


def _chosen(graph: NodeGraph, split: str, compared: bool) -> tuple[Array, list[Rejected]]:
    parts, labels = graph.found.parts, graph.found.labels
    inside = np.ones(len(parts), bool) if split == ALL else parts == SPLITS.index(split)
    if not compared:
        return np.flatnonzero(inside), []
    unknown = np.flatnonzero(inside & (labels < 0) & (split != ALL))
    reason = "its class is unknown, so there is nothing to compare with"
    return np.flatnonzero(inside & (labels >= 0)), [Rejected(Path(graph.name(int(one))), reason) for one in unknown]


def _named(graph: NodeGraph, wanted: Sequence[str]) -> tuple[Array, list[Rejected]]:
    known = {name: number for number, name in enumerate(graph.found.names)}
    found, rejected, count = list[int](), list[Rejected](), len(graph)
    for word in wanted:
        first, _, last = word.removeprefix("node ").partition("-")
        if word in known:
            found.append(known[word])
        elif first.isdecimal() and (last.isdecimal() or (last == "" and "-" not in word)):
            start, stop = int(first), int(last or first)
            found += range(start, min(stop + 1, count))
            if stop >= count or stop < start:
                rejected.append(Rejected(Path(f"node {word}"), f"the graph has nodes 0 to {count - 1}"))
        else:
            hint = did_you_mean(word, known) if known else ""
            rejected.append(Rejected(Path(f"node {word}"), f"is not a node;{hint} use 0 to {count - 1}"))
    return np.array(found, np.int64), rejected


def read_node_graph(path: Path) -> NodeGraph:
    """Return the graph of an ``.npz`` file, of a folder with Planetoid's ``ind.NAME.*``, or of an OGB folder.

    Planetoid's files are pickles; no function named in them is called (:mod:`.pickled_arrays`). The graph is cached
    until the path changes. Raises DataError if the path is none of these, is damaged, its parts do not match, or the
    graph has no edges.
    """
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check --data_path") from error
    return _read(path, changed)


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> NodeGraph:
    found, files = _of_layout(path)
    try:
        checked(found.graph, finite=False)  # NaN affects the nodes that it reaches, not the whole graph
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if not found.graph.edges.size:
        raise DataError(
            f"{path}: {len(found.labels)} nodes and no edges, so no node has a neighbour; add edges, or classify the "
            "rows with a model that does not use a graph"
        )
    return NodeGraph(path, found, files)


def _of_layout(path: Path) -> tuple[Labelled, Sequence[Path]]:
    if path.is_file() and path.suffix == ".npz":
        return _of_npz(path), [path]
    planetoid = path if path.is_dir() else path.parent
    if sorted(planetoid.glob("ind.*.graph")):
        from utils.datasets.graphs.planetoid import read_planetoid

        return read_planetoid(path)
    from utils.datasets.graphs.ogb import is_ogb, read_ogb_nodes

    if is_ogb(path):
        return read_ogb_nodes(path)
    raise DataError(
        f"{path}: not a graph with node classes; pass an .npz file, a folder with Planetoid's ind.NAME.graph, or an "
        "OGB folder with raw/edge.csv.gz"
    )


def _of_npz(file: Path) -> Labelled:
    arrays = read_npz(file, fix=FIX, fix_single=FIX)
    if "edge_index" in arrays:
        arrays.setdefault("edges", arrays["edge_index"])
    for key in ("x", "edges"):
        if key not in arrays:
            raise DataError(f"{file}: no array {key!r} (found: {', '.join(arrays) or 'nothing'}); {FIX}")
    x, edges = arrays["x"], arrays["edges"]
    if "weights" in arrays or "edge_weight" in arrays:
        raise DataError(f"{file}: edges have weights, which node classifiers here do not support; remove them")
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise DataError(f"{file}: x has shape {x.shape} and dtype {x.dtype}; expected N x F numbers")
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        turned = "; save edges.T" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise DataError(f"{file}: edges have shape {edges.shape} and dtype {edges.dtype}; need 2 x E integers{turned}")
    labels = _column(arrays, ("y", "labels"), len(x), "iu", file)
    keys = (("train_mask",), ("val_mask", "valid_mask"), ("test_mask",))
    masks = [_column(arrays, names, len(x), "b", file) for names in keys]
    names = _column(arrays, ("names",), len(x), "U", file)
    classes = tuple(map(str, arrays.get("classes", ())))
    _refuse_labels(labels, classes, str(file))
    return Labelled(
        Graph(x.astype(np.float32), edges.astype(np.int64), name=file.stem),
        np.full(len(x), -1) if labels is None else labels.astype(np.int64),
        _parts(masks, len(x), file),
        classes,
        tuple(map(str, () if names is None else names)),
        _image(arrays, x, file),
    )


def _column(arrays: Mapping[str, Array], keys: Sequence[str], count: int, kinds: str, file: Path) -> Array | None:
    key = next((key for key in keys if key in arrays), None)
    if key is None:
        return None
    found = arrays[key]
    if found.shape != (count,) or found.dtype.kind not in kinds:
        what = {"b": "booleans", "iu": "integers", "U": "texts"}[kinds]
        raise DataError(f"{file}: {key} has shape {found.shape} and dtype {found.dtype}; expected {count} {what}")
    return found


def _refuse_labels(labels: Array | None, classes: Sequence[str], where: str) -> None:
    """Raise DataError if a label is not a class."""
    highest, lowest = (-1, -1) if labels is None or not labels.size else (int(labels.max()), int(labels.min()))
    if lowest < -1 or (classes and highest >= len(classes)):
        wrong = lowest if lowest < -1 else highest
        last = (len(classes) or highest + 1) - 1
        raise DataError(f"{where}: class {wrong} must be from 0 to {last}, or -1 for unknown")


def _parts(masks: Sequence[Array | None], count: int, file: Path) -> Array:
    """Return the part of each node; without any mask all are test nodes."""
    parts = np.full(count, -1 if any(mask is not None for mask in masks) else SPLITS.index(TEST), np.int8)
    for place, mask in enumerate(masks):
        if mask is not None:
            if (parts[mask] >= 0).any():
                raise DataError(f"{file}: a node is in two of train, valid and test; assign each to one")
            parts[mask] = place
    return parts


def _image(arrays: Mapping[str, Array], x: Array, file: Path) -> tuple[int, int] | None:
    if "picture" not in arrays:
        return None
    sides = arrays["picture"].ravel().tolist()
    whole = arrays["picture"].dtype.kind in "iu" and len(sides) == 2 and min(sides) > 0
    if not whole or sides[0] * sides[1] != x.shape[1]:
        shown = shown_value(sides)
        raise DataError(f"{file}: image {shown} is not height and width of {x.shape[1]} numbers; remove it")
    return int(sides[0]), int(sides[1])
