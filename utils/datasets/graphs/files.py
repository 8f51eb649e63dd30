"""Graphs: numbers of nodes and of edges, many graphs in one ``.npz`` file, and what is wrong with one.

The layout of a file of G graphs, in which nothing is pickled (:func:`save_graphs` writes it):

- ``nodes``: float, all nodes one graph after another x F. ``node_counts``: G whole numbers, how many each graph has.
- ``edges``: whole numbers, 2 x all edges, source and target, counted from 0 within its own graph. ``edge_counts``: G.
- ``edge_weights``: float, all edges x D, where edges have numbers of their own.
- ``targets``: G or G x T numbers, NaN where one is not known. ``target_names``: T texts. ``names``: G texts.
- ``features``: a text that says what the F numbers of a node are, as its maker stored it.
- ``points`` (all nodes x 2), ``labels`` (a text per node) and ``orders`` (a whole number per edge): how it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError

FIX = "save it with utils.datasets.graphs.files.save_graphs"

_PER_NODE, _PER_EDGE = ("nodes", "points", "labels"), ("edge_weights", "orders")


class Look(NamedTuple):
    """How a graph is drawn.

    Attributes:
        points: float32 [N, 2], where its nodes lie, in any unit, y upwards.
        labels: what stands at each node; empty for a bare corner.
        orders: int8 [E], how many lines an edge is drawn as; 4 stands for one and a dashed one.
    """

    points: Array
    labels: Sequence[str]
    orders: Array


class Graph(NamedTuple):
    """One graph.

    Attributes:
        nodes: float32 [N, F], the numbers of each node.
        edges: int64 [2, E], source and target of each edge, counted from 0.
        weights: float32 [E, D], the numbers of each edge; ``None``: edges have none.
        name: for reports and file names.
        look: how it is drawn; ``None``: that is not known.
    """

    nodes: Array
    edges: Array
    weights: Array | None = None
    name: str = ""
    look: Look | None = None


class GraphFile(NamedTuple):
    """What a file of graphs holds.

    Attributes:
        graphs: in order. targets: float64 [G, T], or ``None``. target_names: T texts, or none.
        features: what the numbers of a node are, as text; empty where the file does not say.
    """

    graphs: list[Graph]
    targets: Array | None = None
    target_names: tuple[str, ...] = ()
    features: str = ""


def checked(graph: Graph, *, finite: bool = True) -> Graph:
    """Return a graph whose arrays fit one another.

    Args:
        finite: whether NaN and infinity among the numbers of nodes and edges are refused.

    Raises:
        DataError: one line with what is wrong and what to do; the graph's name is not in it.
    """
    nodes, edges, weights = graph.nodes, graph.edges, graph.weights
    if nodes.ndim != 2 or not nodes.size:
        raise DataError(
            f"has nodes of shape {nodes.shape}, so there is nothing to compute; give N x F with N at least 1"
        )
    if finite and not np.isfinite(nodes).all():
        wrong = int(np.flatnonzero(~np.isfinite(nodes).all(axis=1))[0])
        raise DataError(f"has NaN or infinity among the numbers of node {wrong}; correct them, or leave the graph out")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise DataError(f"has edges of shape {edges.shape}; give 2 x E, source and target")
    if edges.size and not 0 <= edges.min() <= edges.max() < len(nodes):
        wrong = next(int(end) for end in edges.ravel() if not 0 <= end < len(nodes))
        raise DataError(f"has an edge at node {wrong}, and its nodes are 0 to {len(nodes) - 1}; correct the edges")
    if weights is not None and (weights.ndim != 2 or len(weights) != edges.shape[1]):
        raise DataError(f"has weights of shape {weights.shape} for {edges.shape[1]} edges; give E x D")
    if finite and weights is not None and not np.isfinite(weights).all():
        wrong = int(np.flatnonzero(~np.isfinite(weights).all(axis=1))[0])
        raise DataError(f"has NaN or infinity among the weights of edge {wrong}; correct them, or leave the graph out")
    return graph


def both_ways(graph: Graph) -> Graph:
    """Return a graph with the inverse of every edge that lacks it, as undirected graphs are computed.

    An edge listed twice counts once; a loop from a node to itself stays. An inverse has its edge's numbers. Edges come
    in the order of their source, then target. A graph that has all inverses and nothing twice keeps its own order.
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


# ------------------------------------------------------------------------------------------------------------ the file


def save_graphs(file: Path, found: GraphFile) -> None:
    """Write graphs, all of them with the same columns, in the layout above.

    Raises:
        ConfigError: the file cannot be written, or some graphs have numbers at their edges, or looks, and others none.
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
        raise ConfigError(
            f"{file}: some graphs have edge weights or looks and others none; give them to all or to none"
        )
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
        with file.open("wb") as stream:  # by name, numpy would add an ending
            np.savez_compressed(stream, allow_pickle=False, **arrays)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror or error}); choose another place") from error


def read_graphs(file: Path) -> GraphFile:
    """Read a file of many graphs; single graphs are checked later (:func:`checked`), so that a bad one costs itself.

    Raises:
        DataError: the file cannot be read, or its arrays do not fit one another.
    """
    from utils.arrays import read_npz

    arrays = read_npz(file, fix=FIX, fix_single=FIX)
    missing = [name for name in ("nodes", "node_counts", "edges", "edge_counts") if name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        raise DataError(f"{file}: no array {missing[0]!r} (it holds {held}); {FIX}")
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
        graphs.append(
            Graph(
                np.asarray(arrays["nodes"][own], np.float32),
                np.asarray(arrays["edges"][:, ends], np.int64),
                None if weights is None else np.asarray(weights[ends], np.float32),
                name,
                look,
            )
        )
    targets, target_names = _targets(arrays, count, file)
    return GraphFile(graphs, targets, target_names, str(arrays.get("features", "")))


def _starts(arrays: Mapping[str, Array], key: str, file: Path) -> Array:
    """Return where each graph begins, and behind them where the last one ends."""
    counts = arrays[key]
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise DataError(
            f"{file}: {key} has shape {counts.shape} and dtype {counts.dtype}; it needs G whole numbers; {FIX}"
        )
    if not len(counts):
        raise DataError(f"{file}: {key} is empty, so there are no graphs; {FIX}")
    starts: Array = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return starts


def _refuse_misfits(arrays: Mapping[str, Array], nodes: int, edges: int, file: Path) -> None:
    if arrays["edges"].ndim != 2 or arrays["edges"].shape[0] != 2 or arrays["edges"].dtype.kind not in "iu":
        shape, dtype = arrays["edges"].shape, arrays["edges"].dtype
        raise DataError(f"{file}: edges have shape {shape} and dtype {dtype}; they need 2 x E whole numbers; {FIX}")
    if arrays["nodes"].ndim != 2 or arrays["nodes"].dtype.kind not in "biuf":
        shape, dtype = arrays["nodes"].shape, arrays["nodes"].dtype
        raise DataError(f"{file}: nodes have shape {shape} and dtype {dtype}; they need N x F numbers; {FIX}")
    sizes = [(key, len(arrays[key]), nodes, "node_counts") for key in _PER_NODE if key in arrays]
    sizes += [(key, len(arrays[key]), edges, "edge_counts") for key in _PER_EDGE if key in arrays]
    for key, size, wanted, why in [*sizes, ("edges", arrays["edges"].shape[1], edges, "edge_counts")]:
        if size != wanted:
            raise DataError(f"{file}: {key} are {size}, and {why} add up to {wanted}; {FIX}")


def _texts(arrays: Mapping[str, Array], key: str, count: int, file: Path) -> list[str]:
    found = arrays.get(key)
    if found is None:
        return []
    if found.shape != (count,):
        raise DataError(f"{file}: {key} have shape {found.shape}, they need ({count},); {FIX}")
    return [str(text) for text in found]


def _targets(arrays: Mapping[str, Array], count: int, file: Path) -> tuple[Array | None, tuple[str, ...]]:
    found = arrays.get("targets", arrays.get("y"))
    if found is None:
        return None, ()
    if found.ndim not in (1, 2) or len(found) != count or found.dtype.kind not in "biuf":
        raise DataError(
            f"{file}: targets have shape {found.shape} and dtype {found.dtype}, the {count} graphs need ({count},) or "
            f"({count}, T) numbers; {FIX}"
        )
    targets = found.reshape(count, -1).astype(np.float64)
    return targets, tuple(_texts(arrays, "target_names", targets.shape[1], file))
