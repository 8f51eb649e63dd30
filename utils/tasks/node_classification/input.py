"""Inputs of a node classifier: form of the model, edge weights, sampled neighbours, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, ModelError, engine_nums
from utils.datasets.graphs.node_graphs import NodeGraph
from utils.preprocess.graphs.neighbours import ADJACENCIES, SYMMETRIC, Neighbours, Tree, edges_of, places_of
from utils.tasks import Model, Options
from utils.tasks.common.checks import setting_in_use

NOTE = "nodes"
"""Metadata key: the values that differ from :data:`USUAL`, and ``layers``, the number of hops."""

DENSE, SCATTER, FANOUT = "dense", "scatter", "fanout"
"""Forms of a model, by its inputs: x and a matrix; x, edges and weights; x0, x1, x2 and weights."""

FULL, SAMPLED = "full", "sampled"
FEATURES = ("as_is", "rows")
"""Node features unchanged, or divided by their sum, as GCN's authors do."""

USUAL = {"adjacency": SYMMETRIC, "features": FEATURES[0], "layers": 2}


class How(NamedTuple):
    """Settings of a model's inputs."""

    form: str  # of the model
    adjacency: str  # weights of edges
    features: str  # one of FEATURES
    both: bool  # edges hold in both directions
    fanout: tuple[int, ...]  # neighbours per hop; empty for the whole graph
    seed: int  # of sampling


def form_of(shapes: Sequence[Sequence[Any]], ckpt: Path) -> str:
    """Return the form of a model with inputs of these shapes. Raises ModelError if the shapes fit none."""
    ranks = [len(shape) for shape in shapes]
    forms = {(3, 3): DENSE, (2, 2, 1): SCATTER, (2, 3, 4, 2, 3): FANOUT}
    found = forms.get(tuple(ranks))
    if found is None:
        raise ModelError(
            f"{ckpt}: its inputs have {', '.join(map(str, ranks))} dimensions; expected x and adjacency (3, 3), x, "
            "edges and weights (2, 2, 1), or x0, x1, x2, w1 and w2 (2, 3, 4, 2, 3)"
        )
    return found


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    known = {"adjacency": ADJACENCIES, "features": FEATURES}.get(key, range(1, 100))
    return setting_in_use(
        key,
        model,
        options,
        NOTE,
        USUAL,
        lambda _, value: isinstance(value, (str, int)) and value in known,
        f"in {known}",
    )


def how_of(model: Model, graph: NodeGraph, options: Options) -> How:
    """Return the settings of a model's inputs for a graph. Raises ConfigError if flags contradict each other or the
    model. Raises ModelError if the model has another form, or takes another number of features."""
    form = form_of([spec.shape for spec in model.inputs], model.ckpt)
    wide, features = model.inputs[0].shape[-1], graph.found.graph.nodes.shape[1]
    if wide is not None and wide != features:
        raise ModelError(f"{model.ckpt}: takes {wide} features per node, and those of {graph.path} have {features}")
    both = graph.found.undirected if options.both is None else options.both
    fanout = fanout_of(form, int(now("layers", model, options)), options)
    _refuse_many(form, graph, fanout, model.ckpt, options)
    return How(form, now("adjacency", model, options), now("features", model, options), both, fanout, options.seed)


def fanout_of(form: str, layers: int, options: Options) -> tuple[int, ...]:
    """Return the numbers of sampled neighbours per hop; empty for the whole graph.
    Raises ConfigError if flags contradict each other or the model."""
    if form != FANOUT and options.neighbours != SAMPLED:
        if "fanout" in getattr(options, "given", ()):
            raise ConfigError("--fanout needs sampled neighbours; add --neighbours sampled, or leave it out")
        return ()
    given: tuple[int, ...] = tuple(options.fanout)
    if form == FANOUT and options.neighbours == FULL:
        raise ConfigError("--neighbours full: this model takes sampled neighbours only; leave it out")
    if len(given) != layers:
        raise ConfigError(f"--fanout {' '.join(map(str, given))} has {len(given)} hops, and the model has {layers}")
    return given


def _refuse_many(form: str, graph: NodeGraph, fanout: Sequence[int], ckpt: Path, options: Options) -> None:
    """Raise ConfigError if a matrix, or the sampled neighbours of one node, exceed ``--node_limit``."""
    count = places_of(fanout) if fanout else len(graph)
    if fanout and count > options.node_limit:
        raise ConfigError(
            f"--fanout {' '.join(map(str, fanout))} means {count} nodes per sample, more than --node_limit "
            f"{options.node_limit}; sample fewer, or raise the limit"
        )
    if form == DENSE and count > options.node_limit:
        raise ConfigError(
            f"{graph.path}: {count} nodes are more than --node_limit {options.node_limit}, as a matrix of them takes "
            f"{4e-9 * count * count:.1f} GB in {ckpt.name}; use --neighbours {SAMPLED}, the {SCATTER} form of the "
            "model, or a higher limit"
        )


@lru_cache(maxsize=4)
def neighbours_of(graph: NodeGraph, both: bool, adjacency: str) -> Neighbours:
    """Return the neighbours of every node, cached."""
    return Neighbours(graph.edges(both), len(graph), adjacency)


@lru_cache(maxsize=4)
def rows_of(graph: NodeGraph, features: str) -> Array:
    """Return the features of every node, float32 [N, F]; 0 for values that are not finite (:func:`check_finite`)."""
    found = graph.found.graph.nodes
    found = np.where(np.isfinite(found), found, 0)
    if features == FEATURES[0]:
        return found
    sums = found.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(found, sums, out=np.zeros_like(found), where=sums != 0))


def check_finite(numbers: Sequence[int], model: Model, graph: NodeGraph, how: How, options: Options) -> None:
    """Check that NaN or infinity in features does not reach the answers of some nodes. Raises DataError if a value that
    is not finite is within the stored number of hops of a node (any number if not stored)."""
    notes = model.stored.json(NOTE, {})
    hops = int(now("layers", model, options)) if isinstance(notes, dict) and "layers" in notes else None
    lost = lost_of(graph, how.both, how.adjacency, hops)
    reached = next((number for number in numbers if lost[number]), None)
    if reached is not None:
        wrong = np.flatnonzero(~np.isfinite(graph.found.graph.nodes).all(axis=1)).tolist()
        others = f"the features of a node within its hops, such as number {wrong[0]}"
        raise DataError(f"NaN or infinity is among {'its own features' if reached in wrong else others}; correct them")


@lru_cache(maxsize=4)
def lost_of(graph: NodeGraph, both: bool, adjacency: str, hops: int | None) -> Array:
    """Return the nodes that NaN or infinity reaches within ``hops`` (``None``: any number), bool [N]."""
    wrong: Array = np.asarray(~np.isfinite(graph.found.graph.nodes).all(axis=1))
    return neighbours_of(graph, both, adjacency).reached(wrong, hops) if wrong.any() else wrong


def dtype_of(model: Model) -> str:
    """Return the dtype of node features; :attr:`Model.dtype` may be that of edges, which set the batch."""
    return str(model.inputs[0].dtype)


# --------------------------------------------------------------------------------------------------- the whole graph


def whole_graph(model: Model, graph: NodeGraph, how: How) -> list[Array]:
    """Return the arrays of one call for all nodes. Raises DataError if the graph is larger than the model's input."""
    rows, neighbours = rows_of(graph, how.features), neighbours_of(graph, how.both, how.adjacency)
    dtype = dtype_of(model)
    if how.form == DENSE:
        size = _size(len(graph), 0, 1, "nodes", model)
        return [_filled(rows, size, dtype)[None], neighbours.matrix(size, dtype)[None]]
    edges, weights = neighbours.listed()
    size = _size(len(graph), 0, 0, "nodes", model)
    length = _size(len(weights), 1, 1, "edges", model)
    return [
        _filled(rows, size, dtype),
        np.ascontiguousarray(_filled(edges.T, length, "int64").T),
        _filled(weights, length, dtype),
    ]


def _size(needed: int, place: int, axis: int, what: str, model: Model) -> int:
    """Return the size of an input that holds ``needed``: the fixed one, a planned one, or ``needed``."""
    sizes = model.sizes(place, axis)
    if not sizes:
        return needed
    fitting = [size for size in sizes if size >= needed]
    if not fitting:
        raise DataError(
            f"the graph has {needed} {what}, and {model.ckpt.name} takes at most {max(sizes)}; export it with an open "
            f"size, pass a larger one with --dim, or use --neighbours {SAMPLED}"
        )
    return min(fitting)


def _filled(array: Array, size: int, dtype: str) -> Array:
    """Return rows padded with zeros."""
    found = np.zeros((size, *array.shape[1:]), dtype)
    found[: len(array)] = array
    return found


# ------------------------------------------------------------------------------------------------- sampled neighbours


def sampled_nodes(numbers: Sequence[int], model: Model, graph: NodeGraph, how: How) -> list[Array]:
    """Return the arrays of some nodes with sampled neighbours; nodes along the first axis.
    For the form ``scatter``: x N x n x F, edges N x 2 x E and weights N x E, which :func:`packed` joins."""
    neighbours = neighbours_of(graph, how.both, how.adjacency)
    rows = rows_of(graph, how.features)
    trees = [neighbours.sampled(number, how.fanout, how.seed) for number in numbers]
    x = np.stack([np.where(tree.numbers[:, None] >= 0, rows[np.maximum(tree.numbers, 0)], 0) for tree in trees])
    dtype = dtype_of(model)
    x = x.astype(dtype)
    if how.form == FANOUT:
        return _levels(x, trees, how.fanout, dtype)
    edges, weights = (list(part) for part in zip(*(neighbours.of_tree(tree) for tree in trees), strict=True))
    if how.form == SCATTER:
        return [x, np.stack(edges), np.stack(weights).astype(dtype)]
    adjacency = np.zeros((len(trees), x.shape[1], x.shape[1]), dtype)
    for matrix, (sources, targets), values in zip(adjacency, edges, weights, strict=True):
        matrix[targets, sources] = values
    return [x, adjacency]


def _levels(x: Array, trees: Sequence[Tree], fanout: Sequence[int], dtype: str) -> list[Array]:
    """Return x0, x1, x2, w1 and w2; the weights average over existing neighbours."""
    count, (near, far) = len(trees), fanout
    there = np.stack([tree.numbers >= 0 for tree in trees])[:, 1:].astype(np.float32)
    w1, w2 = there[:, :near], there[:, near:].reshape(count, near, far)
    w1, w2 = (w / np.maximum(w.sum(axis=-1, keepdims=True), 1) for w in (w1, w2))
    levels = [x[:, 0], x[:, 1 : 1 + near], x[:, 1 + near :].reshape(count, near, far, -1)]
    return [np.ascontiguousarray(level) for level in levels] + [w.astype(dtype) for w in (w1, w2)]


def packed(arrays: Sequence[Array], share: int) -> list[list[Array]]:
    """Return the arrays of each SPA for the form ``scatter``: ``share`` graphs as one block-diagonal graph.
    The last SPA repeats its last graph, so that all have one size."""
    x, edges, weights = arrays
    shards = []
    for start in range(0, len(x), share):
        places = np.minimum(np.arange(start, start + share), len(x) - 1)
        moved = edges[places] + (np.arange(share) * x.shape[1])[:, None, None]
        shards.append(
            [
                x[places].reshape(-1, x.shape[2]),
                np.ascontiguousarray(moved.transpose(1, 0, 2).reshape(2, -1)),
                weights[places].reshape(-1),
            ]
        )
    return shards


def share_of(batch: int) -> int:
    """Return the number of a batch's nodes per SPA."""
    return -(-batch // engine_nums())


# -------------------------------------------------------------------------------------------------------------- sizes


def sizes_of(model: Model, graph: NodeGraph, options: Options) -> dict[Any, tuple[int, ...]]:
    """Return the sizes of a model's open dimensions, by the graph or the sampled neighbours.
    Those of the form ``scatter``, which has no batch, are keyed by their symbols, if the model has them."""
    how = how_of(model, graph, options)
    if how.form == FANOUT:
        near, far = how.fanout
        return {(1, 1): (near,), (2, 1): (near,), (2, 2): (far,), (3, 1): (near,), (4, 1): (near,), (4, 2): (far,)}
    if how.fanout:
        count, edges = places_of(how.fanout), edges_of(how.fanout, how.adjacency)
    else:
        neighbours = neighbours_of(graph, how.both, how.adjacency)
        count, edges = len(graph), len(neighbours.sources) + (len(graph) if neighbours.loops else 0)
    if how.form == DENSE:
        batch = {} if how.fanout else {(0, 0): (1,), (1, 0): (1,)}
        return {**batch, (0, 1): (count,), (1, 1): (count,), (1, 2): (count,)}
    share = share_of(options.batch_size) if how.fanout else 1
    places = {(0, 0): count * share, (1, 1): edges * share, (2, 0): edges * share}
    symbols = [spec.symbols or (None,) * len(spec.shape) for spec in model.inputs]
    return {symbols[at][axis] or (at, axis): (size,) for (at, axis), size in places.items()}
