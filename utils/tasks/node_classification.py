"""Node classification: one large graph in, the class of some of its nodes out; the metric is the nodes' accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Engine, InputError, ModelError, Timeline
from utils.datasets.base import Dataset
from utils.datasets.labelled_graph import SPLITS, TRAIN
from utils.datasets.node_graphs import GRAPH, Node, NodeGraph, load_nodes
from utils.metrics.base import Metric
from utils.metrics.nodes import NodeAccuracy
from utils.once import Once
from utils.outputs import DEFAULT, DTYPE, LABELS, refuse_topk
from utils.preprocess.graphs.neighbours import ADJACENCIES
from utils.tasks.base import Artifact, Choice, Options, Task
from utils.tasks.model import Model
from utils.tasks.node_input import (
    DENSE,
    FEATURES,
    FLAGS,
    NOTE,
    SCATTER,
    How,
    check,
    how_of,
    neighbours_of,
    now,
    open_sizes,
    packed,
    refuse_lost,
    sampled_nodes,
    share_of,
    whole_graph,
)
from utils.tasks.outputs import KIND_FLAG, are_labels, class_rows, in_words
from utils.tasks.prepared import Prepared


class Context(NamedTuple):
    """What is kept of a node: its number, and whether it has no neighbour."""

    number: int
    alone: bool


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the nodes to answer (:func:`~utils.datasets.node_graphs.load_nodes`).

    The script for one sample takes the first nodes of the part, a batch of them, unless ``--nodes`` names some.
    """
    wanted = getattr(options, "nodes", None) if options.script != "valid" else None
    found = load_nodes(paths["data"], options.split, wanted, compared=options.script == "valid")
    return found if options.script != "single" or wanted else found.select(range(min(len(found), options.batch_size)))


def prepare(samples: Sequence[Node], model: Model, options: Options) -> Prepared:
    """Return the nodes' numbers for a call on the whole graph, or each node with its sampled neighbours.

    Raises:
        ConfigError: the graph has too many nodes for the model's form, or flags do not go together.
        DataError: a node hears of NaN. ModelError: the model is no classifier of such nodes.
    """
    graph = samples[0].graph
    how = how_of(model, graph, options)
    numbers = [sample.number for sample in samples]
    refuse_lost(numbers, model, graph, how, options)
    degrees = neighbours_of(graph, how.both, how.adjacency).degrees
    contexts = [Context(number, not degrees[number]) for number in numbers]
    if not how.fanout:
        return Prepared([np.array(numbers, np.int64)], contexts)
    return Prepared(sampled_nodes(numbers, model, graph, how), contexts)


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Put nodes together along the first axis of every array."""
    columns = zip(*(part.arrays for part in parts), strict=True)
    return [np.concatenate([np.asarray(array) for array in column]) for column in columns]


class State(NamedTuple):
    """The graph, how it goes in, the model's sizes, and the scores of the whole graph once they are computed."""

    graph: NodeGraph
    how: How
    model: Model
    share: int
    scores: Once[str, Array]


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> State:
    """Return what a call needs; the whole graph is computed by the first batch, so that its time is counted."""
    (engine,) = engines.values()
    model, graph = Model.of(engine), dataset.notes[GRAPH]
    return State(graph, how_of(model, graph, options), model, share_of(options.batch_size), Once())


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context], state: State) -> Array:
    """Return the scores of the nodes, N x C: rows of one call for the whole graph, or of a call of their own."""
    (engine,) = engines.values()
    if not state.how.fanout:
        (scores,) = state.scores.of(["all"], lambda _: [_whole(engine, state)])
        return np.asarray(scores[arrays[0]])
    if state.how.form == SCATTER:
        results = engine.call_shards(packed(arrays, state.share))
        size = arrays[0].shape[1]
        return np.concatenate([result[0][::size] for result in results])[: len(arrays[0])]
    found = _first(engine(list(arrays)))
    return np.ascontiguousarray(found[:, 0]) if state.how.form == DENSE else found


def _whole(engine: Engine, state: State) -> Array:
    """Return the scores of all nodes."""
    arrays = whole_graph(state.model, state.graph, state.how)
    if state.how.form == DENSE:
        return np.asarray(_first(engine(arrays))[0])
    (result,) = engine.call_shards([arrays])  # a graph is no batch: it stays on one SPA
    return result[0]


def _first(outputs: Any) -> Array:
    found: Array = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    return found


def decode(outputs: Array, contexts: Any, model: Model, options: Options) -> list[Array]:
    """Return probabilities, N rows of C float32; of logits by a softmax.

    Raises:
        InputError: the output is not N x C scores of at least two classes.
    """
    found = np.asarray(outputs)
    unsure = model.form(options).source in (DEFAULT, DTYPE)
    if unsure and (found.ndim != 2 or found.dtype.kind != "f" or found.shape[1] < 2) and not are_labels(found):
        raise InputError(
            f"{model.ckpt}: the scores of {len(contexts)} nodes have shape {found.shape} and dtype {found.dtype}; "
            "classification takes two classes or more"
        )
    rows = class_rows(found, model, options)
    if rows.are_labels and options.script != "valid":
        refuse_topk(options.topk, model.ckpt)
    logits = rows.values.astype(np.float32)
    if not rows.are_logits:
        return list(logits)
    with np.errstate(invalid="ignore"):  # an infinite score makes its node's scores NaN, which is never right
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return list(powers / powers.sum(axis=1, keepdims=True))


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the nodes' accuracy.

    Raises:
        ModelError: the model stores other classes than the data set names.
    """
    stored, given = model.stored.labels, dataset.notes[GRAPH].found.classes
    if stored is not None and given and tuple(stored) != tuple(given):
        wrong = next(
            (i for i, (a, b) in enumerate(zip(stored, given, strict=False)) if a != b), min(len(stored), len(given))
        )
        raise ModelError(
            f"{model.ckpt}: stores {len(stored)} labels and the graph names {len(given)} classes, which differ at "
            f"number {wrong}; bring 'classes' into the model's order, or leave them out"
        )
    return NodeAccuracy(stored or given or None)


def show(sample: Node, prediction: Array, model: Model, options: Options) -> Artifact:
    """Return the best classes with their scores, and the node's known neighbours; saving draws node and neighbours."""
    labels = model.stored.labels or sample.graph.found.classes
    best = np.argsort(-prediction, kind="stable")[: options.topk].tolist()
    scored = model.form(options).kind != LABELS
    classes = [
        {"label": _label(labels, one), "score": round(float(prediction[one]), 4) if scored else None} for one in best
    ]
    how = how_of(model, sample.graph, options)
    neighbours = neighbours_of(sample.graph, how.both, how.adjacency)
    start, stop = neighbours.starts[sample.number], neighbours.starts[sample.number + 1]
    around = neighbours.sources[start:stop]
    said = "   ".join(map(in_words, classes))
    answer = {"node": sample.number, "classes": classes, "neighbours": len(around)}
    words = f"{said}   {len(around)} neighbour{'' if len(around) == 1 else 's'}"
    return Artifact(words, answer, partial(_save, sample, classes, around, labels))


def _label(labels: Sequence[str] | None, place: int) -> str:
    return labels[place] if labels and place < len(labels) else str(place)


def _save(
    sample: Node, classes: Sequence[Mapping[str, Any]], around: Array, labels: Sequence[str] | None, folder: Path
) -> Path:
    """Draw the node with its answer, and around it its neighbours in the colours of the classes that training knew."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_nodes import MOST, Spot, drawn_node

    found, name = sample.graph.found, sample.graph.name(sample.number)
    rows, known = found.graph.nodes, found.parts == SPLITS.index(TRAIN)

    def spot(number: int, place: int | None, text: str) -> Spot:
        picture = None if found.picture is None else rows[number].reshape(found.picture)
        return Spot(text, place, picture)

    said = str(classes[0]["label"])
    best = next((i for i, label in enumerate(labels or ()) if label == said), None)
    best = int(said) if best is None else best
    centre = spot(sample.number, best, f"{name}: {said}")
    near = []
    for number in around[:MOST].tolist():
        place = int(found.labels[number]) if known[number] else None
        near.append(spot(number, place, "?" if place is None else _label(labels, place)))
    lines = [", ".join(map(in_words, classes))]
    more = f", {MOST} of them drawn" if len(around) > MOST else ""
    lines.append(f"{len(around)} neighbours{more}; a coloured one has a class that training knew")
    return save_drawn(sample.graph.path / name.replace(" ", "_"), lines, folder, drawn_node(centre, near))


def summary(predictions: Sequence[Array], model: Model, options: Options) -> str:
    """Return how often each class came first, the most frequent ones."""
    labels = model.stored.labels
    places, counts = np.unique([int(np.argmax(one)) for one in predictions], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:SHOWN].tolist()
    listed = ", ".join(f"{_label(labels, int(places[one]))} x {counts[one]}" for one in order)
    return listed + (f", and {len(places) - SHOWN} more classes" if len(places) > SHOWN else "")


SHOWN = 10
"""Classes that a summary lists."""


def counted(contexts: Sequence[Context] | None) -> Mapping[str, int]:
    """Count the nodes that have no neighbour."""
    alone = sum(context.alone for context in contexts or ())
    return {"without_neighbours": alone} if alone else {}


def remarks(counts: Mapping[str, int], samples: int) -> Sequence[str]:
    """Say how many nodes have no neighbour."""
    alone = counts.get("without_neighbours", 0)
    return (
        [f"{alone} of {samples} nodes have no neighbour: they are answered by their own numbers alone"] if alone else []
    )


def figures(timeline: Timeline, samples: int) -> dict[str, float]:
    """Return how often the model was called and how long a call took, in seconds: once for a whole graph."""
    calls = timeline.count("call model")
    return {"model_calls": calls, "model_call_s": round(timeline.seconds("call model") / calls, 6)} if calls else {}


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[Any]:
    """Read the source framework's answers (:func:`~utils.tasks.text_answers.read_answers`)."""
    from utils.tasks.text_answers import read_answers

    return read_answers(file, dataset, model.stored.labels)


def agreement(prediction: Array, answer: Any) -> float:
    """Return 1 where both say the same class, less what their scores differ by where that is known; else 0."""
    from utils.tasks.text_answers import agreement_of

    return agreement_of(prediction, answer)


NODE_CLASSIFICATION = Task(
    name="node_classification",
    domain="gnn",
    load=load,
    prepare=prepare,
    collate=collate,
    setup=setup,
    infer=infer,
    decode=decode,
    metric=metric,
    show=show,
    summary=summary,
    counted=counted,
    remarks=remarks,
    figures=figures,
    open_sizes=open_sizes,
    check=check,
    flags=(*FLAGS, KIND_FLAG),
    watched=False,
    data_help="a graph: an .npz file, a folder with Planetoid's ind.NAME.*, or an OGB folder",
    choices=(
        Choice("--adjacency", ADJACENCIES, "prepare", partial(now, "adjacency")),
        Choice("--features", FEATURES, "prepare", partial(now, "features")),
    ),
    stored_under=NOTE,
    answers=answers,
    agreement=agreement,
)
"""Nodes of a graph in, their classes out: the whole graph in one call, or every node with sampled neighbours."""
