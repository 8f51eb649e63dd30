"""Node classification in one large graph; the metric is the nodes' accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Engine, ModelError, Timeline
from tecoinfer_modelzoo.once import Once
from utils.datasets.base import Dataset
from utils.datasets.graphs.files import SPLITS, TRAIN
from utils.datasets.graphs.node_graphs import ALL, GRAPH, Node, NodeGraph, load_nodes, read_node_graph
from utils.metrics.base import Metric
from utils.metrics.nodes import NodeAccuracy
from utils.outputs import LABELS, refuse_topk
from utils.preprocess.graphs.neighbours import ADJACENCIES
from utils.tasks import ExportSetting, Flag, Model, OpenSizes, Prepared, Rendering, Task, at_least, str2bool
from utils.tasks.common.class_scores import (
    ClassAnswers,
    JoinedRows,
    check_class_scores,
    label_of,
    most_frequent,
    softmax,
)  # fmt: skip
from utils.tasks.common.outputs import KIND_FLAG, class_rows, first_of, in_words
from utils.tasks.node_classification import input as inputs

SHOWN = 10
"""Number of classes in the summary."""


class Context(NamedTuple):
    """Context of a node: its number, and whether it has no neighbours."""

    number: int
    alone: bool


class State(NamedTuple):
    """The graph, the settings of the inputs, and the cached scores of the whole graph."""

    graph: NodeGraph
    how: inputs.How
    scores: Once[str, Array]


class NodeClassification(JoinedRows, ClassAnswers, Task):
    """Classes of nodes, by one call for the whole graph, or by calls for nodes with sampled neighbours."""

    name, domain = "node_classification", "gnn"
    data_help = "a graph: an .npz file, a folder with Planetoid's ind.NAME.*, or an OGB folder"
    flags = (
        Flag("--split", "part of the graph whose nodes are classified", "test", choices=(*SPLITS, ALL)),
        Flag("--nodes", "nodes to classify, by number, range or name, instead of a part: 17 20-29", None, nargs="+",
             metavar="NODE", scripts=("single", "multi")),
        Flag("--neighbours", "full: one call for the whole graph; sampled: neighbours of each node by --fanout "
             "(default: by the model's inputs)", None, choices=(inputs.FULL, inputs.SAMPLED)),
        Flag("--fanout", "number of sampled neighbours per hop", [10, 5], int, nargs="+", metavar="N"),
        Flag("--seed", "of the sampled neighbours", 0, int),
        Flag("--adjacency", "weights of edges (default: as stored)", None, choices=ADJACENCIES),
        Flag("--features", "node features unchanged, or divided by their sum (default: as stored)", None,
             choices=inputs.FEATURES),
        Flag("--both", "edges hold in both directions (default: by the layout)", None, str2bool, nargs="?"),
        Flag("--node_limit", "most nodes of a matrix, or of a node with its sampled neighbours", 10_000, int),
        Flag("--topk", "number of classes shown", 1, int, scripts=("single", "multi")),
        KIND_FLAG,
    )  # fmt: skip
    export_settings = (
        ExportSetting("--adjacency", ADJACENCIES, "prepare", partial(inputs.now, "adjacency")),
        ExportSetting("--features", inputs.FEATURES, "prepare", partial(inputs.now, "features")),
    )
    metadata_key = inputs.NOTE
    state: State

    def check(self) -> None:
        """Check ``--fanout``, ``--seed``, ``--node_limit`` and ``--topk``."""
        at_least(self.options, fanout=1, seed=0, node_limit=1, topk=1)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the nodes to classify (:func:`~utils.datasets.graphs.node_graphs.load_nodes`).
        ``single`` takes the first batch of the part, unless ``--nodes`` lists some."""
        compared = self.options.script == "valid"
        wanted = None if compared else self.options.nodes
        found = load_nodes(paths["data"], self.options.split, wanted, compared=compared)
        return found if wanted else self.selected(found)

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the sizes of the model's open dimensions, read from its file and the graph's."""
        path, ckpt = getattr(self.options, "data_path", None), self.options.ckpt
        if not isinstance(path, Path) or not isinstance(ckpt, Path) or not ckpt.is_file():
            return {}
        from engine.onnx import load_model, metadata, signature  # imported by the engine anyway

        loaded = load_model(ckpt)
        specs, _, _ = signature(loaded)
        model = Model(ckpt, tuple(specs), metadata=dict(metadata(loaded)))
        return {"model": inputs.sizes_of(model, read_node_graph(path), self.options)}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Return the settings; the whole graph is computed in the first batch, so that its time is measured."""
        graph = dataset.notes[GRAPH]
        return State(graph, inputs.how_of(self.model, graph, self.options), Once())

    def prepare(self, samples: Sequence[Node]) -> Prepared:
        """Return the nodes' numbers for a call on the whole graph, or each node with its sampled neighbours.

        Raises:
            ConfigError: The graph has too many nodes for the model's form, or flags contradict each other.
            DataError: NaN reaches a node. ModelError: The model does not fit the graph.
        """
        graph = samples[0].graph
        how = inputs.how_of(self.model, graph, self.options)
        numbers = [sample.number for sample in samples]
        inputs.check_finite(numbers, self.model, graph, how, self.options)
        degrees = inputs.neighbours_of(graph, how.both, how.adjacency).degrees
        contexts = [Context(number, not degrees[number]) for number in numbers]
        if not how.fanout:
            return Prepared([np.array(numbers, np.int64)], contexts)
        return Prepared(inputs.sampled_nodes(numbers, self.model, graph, how), contexts)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Context]) -> Array:
        """Return the scores of the nodes, N x C: rows of one call for the whole graph, or of a call for these nodes."""
        (engine,), how = engines.values(), self.state.how
        if not how.fanout:
            (scores,) = self.state.scores.of(["all"], lambda _: [self._whole(engine)])
            return np.asarray(scores[arrays[0]])
        if how.form == inputs.SCATTER:
            results = engine.call_shards(inputs.packed(arrays, inputs.share_of(self.options.batch_size)))
            size = arrays[0].shape[1]
            return np.concatenate([result[0][::size] for result in results])[: len(arrays[0])]
        found: Array = first_of(engine(list(arrays)))
        return np.ascontiguousarray(found[:, 0]) if how.form == inputs.DENSE else found

    def _whole(self, engine: Engine) -> Array:
        """Return the scores of all nodes."""
        arrays = inputs.whole_graph(self.model, self.state.graph, self.state.how)
        if self.state.how.form == inputs.DENSE:
            return np.asarray(first_of(engine(arrays))[0])
        (result,) = engine.call_shards([arrays])  # a graph cannot be split: it stays on one SPA
        return result[0]

    def decode(self, outputs: Array, contexts: Any) -> list[Array]:
        """Return probabilities, N rows of C float32; softmax of logits.
        Raises InputError if the output is not N x C scores of at least two classes."""
        model, options = self.model, self.options
        found = np.asarray(outputs)
        check_class_scores(found, model, options)
        rows = class_rows(found, model, options)
        if rows.are_labels and options.script != "valid":
            refuse_topk(options.topk, model.ckpt)
        logits = rows.values.astype(np.float32)
        return list(softmax(logits) if rows.are_logits else logits)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the nodes' accuracy. Raises ModelError if the stored labels differ from the data set's classes."""
        stored, given = self.model.stored.labels, dataset.notes[GRAPH].found.classes
        if stored is not None and given and tuple(stored) != tuple(given):
            differ = (i for i, (a, b) in enumerate(zip(stored, given, strict=False)) if a != b)
            raise ModelError(
                f"{self.model.ckpt}: its {len(stored)} labels and the graph's {len(given)} classes differ at number "
                f"{next(differ, min(len(stored), len(given)))}; order 'classes' like the labels, or leave them out"
            )
        return NodeAccuracy(stored or given or None)

    def show(self, sample: Node, prediction: Array) -> Rendering:
        """Return the best classes with their scores, and the node's neighbours; saving draws node and neighbours."""
        labels = self.model.stored.labels or sample.graph.found.classes
        best = np.argsort(-prediction, kind="stable")[: self.options.topk].tolist()
        scored = self.model.form(self.options).kind != LABELS
        classes = [
            {"label": label_of(labels, one), "score": round(float(prediction[one]), 4) if scored else None}
            for one in best
        ]
        how = inputs.how_of(self.model, sample.graph, self.options)
        neighbours = inputs.neighbours_of(sample.graph, how.both, how.adjacency)
        start, stop = neighbours.starts[sample.number], neighbours.starts[sample.number + 1]
        around = neighbours.sources[start:stop]
        said = "   ".join(map(in_words, classes))
        answer = {"node": sample.number, "classes": classes, "neighbours": len(around)}
        words = f"{said}   {len(around)} neighbour{'' if len(around) == 1 else 's'}"
        return Rendering(words, answer, partial(_save, sample, classes, around, labels))

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return how often each class came first."""
        return most_frequent(predictions, self.model.stored.labels, SHOWN)

    def warning_counts(self, contexts: Sequence[Context] | None) -> Mapping[str, int]:
        """Count the nodes without neighbours."""
        alone = sum(context.alone for context in contexts or ())
        return {"without_neighbours": alone} if alone else {}

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Return a line about nodes without neighbours."""
        alone = counts.get("without_neighbours", 0)
        said = f"{alone} of {samples} nodes have no neighbours: they are classified by their own features only"
        return [said] if alone else []

    def extra_figures(self, timeline: Timeline, samples: int) -> dict[str, float]:
        """Return the number of model calls (1 for a whole graph), and the mean seconds per call."""
        calls = timeline.count("call model")
        seconds = timeline.seconds("call model")
        return {"model_calls": calls, "model_call_s": round(seconds / calls, 6)} if calls else {}


def _save(
    sample: Node, classes: Sequence[Mapping[str, Any]], around: Array, labels: Sequence[str] | None, folder: Path
) -> Path:
    """Draw the node with its answer, and its neighbours in the colours of their classes in the training part."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_nodes import MOST, Spot, drawn_node

    found, name = sample.graph.found, sample.graph.name(sample.number)
    rows, known = found.graph.nodes, found.parts == SPLITS.index(TRAIN)

    def spot(number: int, place: int | None, text: str) -> Spot:
        image = None if found.image is None else rows[number].reshape(found.image)
        return Spot(text, place, image)

    said = str(classes[0]["label"])
    best = next((i for i, label in enumerate(labels or ()) if label == said), None)
    best = int(said) if best is None else best
    centre = spot(sample.number, best, f"{name}: {said}")
    near = []
    for number in around[:MOST].tolist():
        place = int(found.labels[number]) if known[number] else None
        near.append(spot(number, place, "?" if place is None else label_of(labels, place)))
    lines = [", ".join(map(in_words, classes))]
    more = f", {MOST} of them drawn" if len(around) > MOST else ""
    lines.append(f"{len(around)} neighbours{more}; a coloured one has a class that training knew")
    return save_drawn(sample.graph.path / name.replace(" ", "_"), lines, folder, drawn_node(centre, near))
