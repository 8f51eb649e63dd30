"""Graphs: features of nodes and edges, many graphs in one ``.npz`` file, and the checks of a graph.

The layout of a file of G graphs, without pickled content (:func:`save_graphs` writes it):

- ``nodes``: float, nodes of all graphs in order x F. ``node_counts``: G integers, the nodes per graph.
- ``edges``: integers, 2 x all edges, source and target, counted from 0 in their graph. ``edge_counts``: G.
- ``edge_weights``: float, all edges x D, if edges have features.
- ``targets``: G or G x T numbers, NaN if unknown. ``target_names``: T texts. ``names``: G texts.
- ``features``: a text that describes the F features of a node, as stored by its author.
- ``points`` (all nodes x 2), ``labels`` (a text per node) and ``orders`` (an integer per edge): its drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from utils.arrays import read_npz

FIX = "save it with utils.datasets.graphs.files.save_graphs"

_PER_NODE, _PER_EDGE = ("nodes", "points", "labels"), ("edge_weights", "orders")


class Look(NamedTuple):
    """Drawing of a graph.

    Attributes:
        points: float32 [N, 2], positions of the nodes, in any unit, y upwards.
        labels: text at each node; may be empty.
        orders: int8 [E], lines per edge; 4: one solid and one dashed line.
    """

    points: Array
    labels: Sequence[str]
    orders: Array


class Graph(NamedTuple):
    """One graph.

    Attributes:
        nodes: float32 [N, F], features of the nodes.
        edges: int64 [2, E], source and target of each edge, counted from 0.
        weights: float32 [E, D], features of the edges, or ``None``.
        name: for reports and file names.
        look: its drawing, or ``None``.
    """

    nodes: Array
    edges: Array
    weights: Array | None = None
    name: str = ""
    look: Look | None = None


TRAIN, VALID, TEST = SPLITS = ("train", "valid", "test")
"""Parts of the nodes of a graph with node classes."""


class Labelled(NamedTuple):
    """A graph with node classes.

    Attributes:
        graph: nodes float32 [N, F], edges int64 [2, E] as stored.
        labels: int64 [N], -1 if unknown.
        parts: int8 [N], index into :data:`SPLITS`, -1 for no part.
        classes: names of the classes. names: names of the nodes.
        image: height and width, if the features of a node are an image.
        undirected: whether an edge is stored once for both directions.
    """

    graph: Graph
    labels: Array
    parts: Array
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    image: tuple[int, int] | None = None
    undirected: bool = False


class GraphFile(NamedTuple):
    """Content of a file of graphs.

    Attributes:
        graphs: G graphs, in order.
        targets: float64 [G, T], or ``None``.
        target_names: T texts, or none.
        features: description of a node's features; empty if the file has none.
    """

    graphs: list[Graph]
    targets: Array | None = None
    target_names: tuple[str, ...] = ()
    features: str = ""


def checked(graph: Graph, *, finite: bool = True) -> Graph:
    """Return the graph if its arrays match one another and, with ``finite``, have neither NaN nor infinity.

    Raises DataError with the problem and the fix in one line, without the graph's name.
    """
    nodes, edges, weights = graph.nodes, graph.edges, graph.weights
    if nodes.ndim != 2 or not nodes.size:
        raise DataError(f"has nodes of shape {nodes.shape}; expected N x F with N at least 1")
    if finite and not np.isfinite(nodes).all():
        wrong = int(np.flatnonzero(~np.isfinite(nodes).all(axis=1))[0])
        raise DataError(f"has NaN or infinity in the features of node {wrong}; correct them, or remove the graph")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise DataError(f"has edges of shape {edges.shape}; expected 2 x E, source and target")
    if edges.size and not 0 <= edges.min() <= edges.max() < len(nodes):
        wrong = next(int(end) for end in edges.ravel() if not 0 <= end < len(nodes))
        raise DataError(f"has an edge at node {wrong}, but its nodes are 0 to {len(nodes) - 1}; correct the edges")
    if weights is not None and (weights.ndim != 2 or len(weights) != edges.shape[1]):
        raise DataError(f"has weights of shape {weights.shape} for {edges.shape[1]} edges; expected E x D")
    if finite and weights is not None and not np.isfinite(weights).all():
        wrong = int(np.flatnonzero(~np.isfinite(weights).all(axis=1))[0])
        raise DataError(f"has NaN or infinity in the weights of edge {wrong}; correct them, or remove the graph")
    return graph


def with_reverse_edges(graph: Graph) -> Graph:
    """Return a graph with the reverse of every edge added where missing, as for undirected graphs.

    Duplicate edges are merged; a loop from a node to itself stays. A reverse edge has its edge's features. Edges are
    sorted by source, then target. A graph that has all reverse edges and no duplicates keeps its order.
    """
    edges = graph.edges
    source, target = np.concatenate([edges, edges[::-1]], axis=1)
    keys, first = np.unique(source * len(graph.nodes) + target, return_index=True)
    if len(keys) == edges.shape[1] and (first < edges.shape[1]).all():
        return graph
    weights = None if graph.weights is None else np.concatenate([graph.weights, graph.weights])[first]
    look = graph.look
    if look is not None:
        look = look._replace(orders=np.concatenate([look.orders, look.orders])[first])
    return graph._replace(edges=np.stack([source[first], target[first]]), weights=weights, look=look)


def save_graphs(file: Path, found: GraphFile) -> None:
    """Write graphs, all with the same columns, in the layout above.

    Raises ConfigError if the file cannot be written, or only some graphs have edge features or drawings.
    """
    graphs = found.graphs
    arrays: dict[str, Array] = {
        "nodes": np.concatenate([graph.nodes for graph in graphs]).astype(np.float32),
        "node_counts": np.array([len(graph.nodes) for graph in graphs], np.int64),
        "edges": np.concatenate([graph.edges for graph in graphs], axis=1).astype(np.int64),
        "edge_counts": np.array([graph.edges.shape[1] for graph in graphs], np.int64),
        "names": np.array([graph.name for graph in graphs]),
    }
    weights = [graph.weights for graph in graphs if graph.weights is not None]
    looks = [graph.look for graph in graphs if graph.look is not None]
    if len(weights) not in (0, len(graphs)) or len(looks) not in (0, len(graphs)):
        raise ConfigError(f"{file}: only some graphs have edge weights or looks; add them to all or none")
    if weights:
        arrays["edge_weights"] = np.concatenate(weights).astype(np.float32)
    if looks:
        arrays["points"] = np.concatenate([look.points for look in looks]).astype(np.float32)
        arrays["labels"] = np.array([label for look in looks for label in look.labels])
        arrays["orders"] = np.concatenate([look.orders for look in looks]).astype(np.int8)
    if found.targets is not None:
        arrays["targets"] = np.asarray(found.targets, np.float64)
    if found.target_names:
        arrays["target_names"] = np.array(found.target_names)
    if found.features:
        arrays["features"] = np.array(found.features)
    try:
        with file.open("wb") as stream:  # given a path, numpy would append an ending
            np.savez_compressed(stream, allow_pickle=False, **arrays)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror or error}); choose another path") from error


def read_graphs(file: Path) -> GraphFile:
    """Read a file of many graphs; :func:`checked` runs later for each, so that one bad graph does not stop the rest.

    Raises DataError if the file cannot be read, or its arrays do not match one another.
    """
    arrays = read_npz(file, fix=FIX, fix_single=FIX)
    missing = [name for name in ("nodes", "node_counts", "edges", "edge_counts") if name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        raise DataError(f"{file}: no array {missing[0]!r} (found: {held}); {FIX}")
    nodes, edges = _starts(arrays, "node_counts", file), _starts(arrays, "edge_counts", file)
    if len(nodes) != len(edges):
        raise DataError(f"{file}: {len(nodes) - 1} node_counts and {len(edges) - 1} edge_counts; {FIX}")
    _refuse_misfits(arrays, int(nodes[-1]), int(edges[-1]), file)
    count = len(nodes) - 1
    names = _texts(arrays, "names", count, file) or [f"{file.name}[{place}]" for place in range(count)]
    labels = _texts(arrays, "labels", int(nodes[-1]), file)
    points, weights = arrays.get("points"), arrays.get("edge_weights")
    orders = arrays.get("orders", np.ones(int(edges[-1]), np.int8))
    graphs = []
    for place, name in enumerate(names):
        own, ends = slice(nodes[place], nodes[place + 1]), slice(edges[place], edges[place + 1])
        look = None if points is None else Look(points[own], labels[own] or [""] * len(points[own]), orders[ends])
        weight = None if weights is None else np.asarray(weights[ends], np.float32)
        values, arcs = np.asarray(arrays["nodes"][own], np.float32), np.asarray(arrays["edges"][:, ends], np.int64)
        graphs.append(Graph(values, arcs, weight, name, look))
    targets, target_names = _targets(arrays, count, file)
    return GraphFile(graphs, targets, target_names, str(arrays.get("features", "")))


def _starts(arrays: Mapping[str, Array], key: str, file: Path) -> Array:
    counts = arrays[key]
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise DataError(f"{file}: {key} has shape {counts.shape} and dtype {counts.dtype}; expected G integers; {FIX}")
    if not len(counts):
        raise DataError(f"{file}: {key} is empty: no graphs; {FIX}")
    starts: Array = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return starts


def _refuse_misfits(arrays: Mapping[str, Array], nodes: int, edges: int, file: Path) -> None:
    if arrays["edges"].ndim != 2 or arrays["edges"].shape[0] != 2 or arrays["edges"].dtype.kind not in "iu":
        shape, dtype = arrays["edges"].shape, arrays["edges"].dtype
        raise DataError(f"{file}: edges have shape {shape} and dtype {dtype}; expected 2 x E integers; {FIX}")
    if arrays["nodes"].ndim != 2 or arrays["nodes"].dtype.kind not in "biuf":
        shape, dtype = arrays["nodes"].shape, arrays["nodes"].dtype
        raise DataError(f"{file}: nodes have shape {shape} and dtype {dtype}; expected N x F numbers; {FIX}")
    sizes = [(key, len(arrays[key]), nodes, "node_counts") for key in _PER_NODE if key in arrays]
    sizes += [(key, len(arrays[key]), edges, "edge_counts") for key in _PER_EDGE if key in arrays]
    for key, size, wanted, why in [*sizes, ("edges", arrays["edges"].shape[1], edges, "edge_counts")]:
        if size != wanted:
            raise DataError(f"{file}: {key} has {size} entries, but {why} add up to {wanted}; {FIX}")


def _texts(arrays: Mapping[str, Array], key: str, count: int, file: Path) -> list[str]:
    found = arrays.get(key)
    if found is None:
        return []
    if found.shape != (count,):
        raise DataError(f"{file}: {key} have shape {found.shape}; expected ({count},); {FIX}")
    return [str(text) for text in found]


def _targets(arrays: Mapping[str, Array], count: int, file: Path) -> tuple[Array | None, tuple[str, ...]]:
    found = arrays.get("targets", arrays.get("y"))
    if found is None:
        return None, ()
    if found.ndim not in (1, 2) or len(found) != count or found.dtype.kind not in "biuf":
        raise DataError(
            f"{file}: targets have shape {found.shape} and dtype {found.dtype}; expected ({count},) or ({count}, T) "
            f"numbers; {FIX}"
        )
    targets = found.reshape(count, -1).astype(np.float64)
    return targets, tuple(_texts(arrays, "target_names", targets.shape[1], file))
