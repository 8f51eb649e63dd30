"""Graph prediction: numbers or classes of a whole graph, such as a molecule."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, InputError, TensorSpec, engine_nums
from tecoinfer_modelzoo.text import one_line, shape_text
from utils.datasets.base import Batch, Dataset, ListDataset
from utils.datasets.graphs.files import Graph, checked, with_reverse_edges
from utils.datasets.graphs.molecules import Molecule, graph_of, look_of
from utils.datasets.graphs.sets import FEATURES, TARGETS, Wanted, load_graphs
from utils.metrics.base import Metric
from utils.outputs import DEFAULT, DTYPE, LABELS, LOG_PROBABILITIES, PROBABILITIES
from utils.preprocess.graphs.messages import Messages, dense, messages
from utils.preprocess.graphs.sparse import Limits, Part, block_diagonal, held, pack, refuse_larger
from utils.tasks import Flag, Options, Prepared, Rendering, Shards, Task, at_least
from utils.tasks.common.class_scores import softmax
from utils.tasks.common.outputs import KIND_FLAG, check_probabilities, class_rows, labels_of
from utils.tasks.common.prediction_files import write_predictions
from utils.tasks.graph_prediction.notes import KINDS, GraphNotes, dense_sizes, is_packed, packed_limits, places_of
from utils.tasks.templates import sample_tables

EDGES_PER_NODE = 4
"""Edges per node that a packed batch has room for: the bonds of a molecule, both ways, and a loop."""

METRICS = {
    "regression": ("rmse", "mae", "r2"),
    "binary": ("roc_auc", "accuracy"),
    "classes": ("accuracy", "roc_auc"),
}
"""Metrics by kind, the metric of record first."""

SHOWN = 4
"""Number of values on the answer's line; the JSON has all."""


class Size(NamedTuple):
    """Context of a graph: its numbers of nodes, and of messages along edges and loops."""

    nodes: int
    messages: int


class GraphPrediction(Task):
    """Models of graphs padded to a matrix, or packed into block-diagonal batches, depending on their inputs."""

    name, domain, domain_default, template = "graph_prediction", "gnn", True, sample_tables.GRAPH_PREDICTION
    data_help = "graphs in an .npz file, molecules as .sdf, .csv, .tsv or .smi, a folder of these, or OGB's folder"
    writes = "the answers as CSV"
    flags = (
        Flag("--smiles", "molecules to run instead of data", None, nargs="+", metavar="SMILES"),
        Flag("--property", "SDF data fields, or columns, with the targets", [], nargs="+", metavar="NAME"),
        Flag("--smiles_column", "column of the SMILES, if its name is not a usual one", None, metavar="NAME"),
        Flag("--split", "of OGB's folders: train, valid, test, SCHEME/test or all (default: test)", None),
        Flag("--nodes", "nodes that a graph is padded to: the card has a plan for each", [16, 32, 64], int, nargs="+"),
        Flag("--edges", "edges of a graph in packed batches, for each of --nodes (default: 4 per node)", None, int,
             nargs="+"),
        Flag("--no_edges", "treatment of a graph without edges", "refuse", choices=("refuse", "answer")),
        KIND_FLAG,
        Flag("--kind", "kind of the output, if the model does not store it", None, choices=KINDS),
        Flag("--metric", "the metric of record (default: rmse, roc_auc or accuracy, by the kind)", None,
             choices=("rmse", "mae", "r2", "roc_auc", "accuracy"), scripts=("valid",)),
    )  # fmt: skip

    def check(self) -> None:
        """Check ``--nodes`` and ``--edges``."""
        at_least(self.options, nodes=1, edges=1)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return graphs (:func:`~utils.datasets.graphs.sets.load_graphs`), in ``valid`` with targets."""
        options = self.options
        wanted = Wanted(options.property, options.smiles_column, options.split, options.script == "valid")
        if paths["data"].suffix.lower() == ".npz" and "property" in getattr(options, "given", ()):
            raise ConfigError(f"{paths['data']}: an .npz file contains its targets; leave out --property")
        return self.selected(load_graphs(paths["data"], wanted))

    def inline_samples(self) -> Dataset | None:
        """Return the molecules of ``--smiles``."""
        given = self.options.smiles
        if not given:
            return None
        return ListDataset([Molecule(smiles, False, smiles) for smiles in given], names=list(given))

    def open_sizes(self) -> dict[str, dict[Any, tuple[int, ...]]]:
        """Return the sizes that a graph is padded to, and those of a packed batch with as many graphs as a SPA gets.
        A packed batch has :data:`EDGES_PER_NODE` messages per node, unless ``--edges`` is given."""
        sizes = sorted(set(self.options.nodes))
        each = -(-self.options.batch_size // engine_nums())
        rooms = {
            "nodes": sizes,
            "all_nodes": [size * each for size in sizes],
            "all_edges": [size * each for size in _edges(self.options)],
            "graphs": [each],
        }
        return {"model": {symbol: tuple(values) for symbol, values in rooms.items()}}

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check that the node features of the data are those of the model's training. Raises ConfigError if the data
        stores other features than the export. Raises ModelError if the model is not a graph network."""
        places_of(self.model)
        notes, made = GraphNotes.of(self.model), dataset.notes.get(FEATURES, "")
        if not made or notes.atoms is None:
            return
        try:
            known = json.loads(made)
        except ValueError as error:
            raise ConfigError(f"the data's features are not JSON ({one_line(error)}); make the file again") from error
        if known != notes.atoms.stored():
            raise ConfigError(
                f"the node features of the data are not those of {self.model.ckpt.name}; make the file of graphs again "
                "with this model's features (docs/reference/gnn.md)"
            )

    def prepare(self, samples: Sequence[Graph | Molecule]) -> Prepared:
        """Convert molecules to graphs, compute edge weights, and arrange the model's inputs.

        Returns:
            For a dense model one array per graph and input; for a packed one nodes and messages, which :meth:`collate`
            packs. Contexts are :class:`Size`.

        Raises:
            DataError: A molecule does not parse; a graph lacks edges or has too many nodes.
            ModelError: The model's inputs or metadata are not those of a graph network.
        """
        model, places = self.model, places_of(self.model)
        notes = GraphNotes.of(model)
        parts = [self._part(sample, notes) for sample in samples]
        sizes: list[Any] = [Size(len(part.nodes), len(part.found.source)) for part in parts]
        if is_packed(model):
            for size in sizes:
                _refuse_larger(size, packed_limits(model), self.options)
            found = map(list, zip(*(part.found for part in parts), strict=True))
            return Prepared([[part.nodes for part in parts], *found], sizes)
        planned = dense_sizes(model)
        for size in sizes:
            if planned and size.nodes > planned[-1]:
                listed = ", ".join(map(str, planned))
                raise DataError(
                    f"has {size.nodes} nodes, and {model.ckpt.name} has plans for at most {planned[-1]} (of {listed}); "
                    f"pass --nodes {' '.join(map(str, planned))} {size.nodes}, or leave the graph out"
                )
        rows = [dense(part.nodes, part.found) for part in parts]
        columns: list[list[Array]] = [[] for _ in places]
        for name, place in places.items():
            columns[place] = [_as(getattr(row, "nodes" if name == "x" else name), model.inputs[place]) for row in rows]
        return Prepared(columns, sizes)

    def _part(self, sample: Graph | Molecule, notes: GraphNotes) -> Part:
        """Return the nodes of a graph and its messages."""
        model = self.model
        if not isinstance(sample, Molecule):
            graph = checked(sample)
        elif notes.atoms is not None:
            graph = graph_of(sample, notes.atoms)
        else:
            raise ConfigError(
                f"{model.ckpt}: does not store its atom features (metadata 'graph', 'atoms'), so molecules are not "
                "supported; pass a file of graphs, or export it with them"
            )
        spec = model.inputs[places_of(model)["x"]]
        width = spec.shape[-1] if spec.shape else None
        if width is not None and graph.nodes.shape[1] != width:
            raise ConfigError(
                f"{sample.name} has {graph.nodes.shape[1]} features per node, and {model.ckpt.name} takes {width}; "
                "pass graphs with the features of its training"
            )
        if not graph.edges.shape[1] and self.options.no_edges == "refuse":
            raise DataError(f"has no edges ({len(graph.nodes)} nodes); add its edges, or pass --no_edges answer")
        graph = graph if notes.directed else with_reverse_edges(graph)
        values = None
        if notes.edge_values:
            if graph.weights is None:
                raise DataError("has no edge weights, which the model needs; add them")
            values = graph.weights[:, 0]
        found = messages(len(graph.nodes), graph.edges, notes.messages, loops=notes.loops, values=values)
        return Part(graph.nodes, found)

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Pad dense graphs to one size; pack others into block-diagonal batches, one per SPA and call."""
        if not is_packed(self.model):
            return super().collate(parts)
        limits, places = packed_limits(self.model), places_of(self.model)
        rows = [row for part in parts for row in zip(*part.arrays, strict=True)]
        graphs = [Part(nodes, Messages(*found)) for nodes, *found in rows]
        shards = Shards()
        for batch in pack([(len(one.nodes), len(one.found.source)) for one in graphs], limits):
            packed = block_diagonal(graphs[batch.start : batch.stop], limits)
            arrays = [packed.x] * len(places)
            for name, place in places.items():
                array, spec = getattr(packed, name), self.model.inputs[place]
                whole = name == "x" and spec.dtype.kind in "iu"
                arrays[place] = _as(array, spec) if whole else array.astype(spec.dtype)
            shards.append(arrays)
        return shards

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Any) -> Array:
        """Return the model's first output for each graph, N x T, without the padding of a packed batch."""
        (engine,) = engines.values()
        if not isinstance(arrays, Shards):
            outputs = engine(arrays)
            return outputs[0] if isinstance(outputs, list) else outputs
        places, results = places_of(self.model), engine.call_shards(arrays)
        kept = [held(shard[places["member"]], shard[places["share"]]) for shard in arrays]
        return np.concatenate([result[0][:count] for result, count in zip(results, kept, strict=True)])

    @property
    def kind(self) -> str:
        """Kind of the output, one of :data:`.KINDS`: ``--kind``, else the stored one, else classes if the graph ends in
        a softmax or an argmax, else numbers."""
        known = self.options.kind or GraphNotes.of(self.model).kind
        if known:
            return str(known)
        classes = self.model.form(self.options).operator in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin")
        return "classes" if classes else KINDS[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs; empty if not stored."""
        return GraphNotes.of(self.model).targets or tuple(self.model.stored.labels or ())

    def decode(self, outputs: Any, contexts: Any) -> list[Array]:
        """Return the prediction of each graph, float64: T numbers, T probabilities, or probabilities of C classes.

        Raises:
            InputError: The output is not N x T numbers, has one class only, or is not probabilities as stored.
            ModelError: The number of labels is not that of classes, or the form of the output is unknown.
        """
        model, kind = self.model, self.kind
        found = np.asarray(outputs)
        found = found[:, None] if found.ndim == 1 else found
        known = model.form(self.options).source not in (DEFAULT, DTYPE)
        if known and kind == "classes":
            rows = class_rows(found, model, self.options)
            values = rows.values.astype(np.float64)
            return list(softmax(values) if rows.are_logits else values)
        if known and kind == "binary":
            return self._of_two(found)
        if found.ndim != 2 or found.dtype.kind != "f" or (kind == "classes" and found.shape[1] < 2):
            raise InputError(
                f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; {kind} of graphs "
                "needs N x T floating-point numbers" + (", two classes or more" if kind == "classes" else "")
            )
        values = found.astype(np.float64)
        if kind == "regression":
            return list(values)
        return list(sigmoid(values) if kind == "binary" else softmax(values))

    def _of_two(self, found: Array) -> list[Array]:
        """Return T probabilities of each graph, from N x T logits, probabilities or labels."""
        model = self.model
        if found.ndim != 2:
            raise InputError(f"{model.ckpt}: its output has shape {shape_text(found.shape)}; expected N x T numbers")
        form, values = model.form(self.options), found.astype(np.float64)
        if form.kind == LABELS:
            return list(labels_of(values, replace(form, classes=2), model, named=False))
        if form.kind == LOG_PROBABILITIES:
            return list(np.exp(values))
        if form.kind != PROBABILITIES:
            return list(sigmoid(values))
        check_probabilities(values, form, model)
        return list(values)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of the model's kind. Raises ConfigError if the kind does not have the metric, or the model
        outputs labels and the metric needs scores."""
        kind = self.kind
        labelled = kind != KINDS[0] and self.model.form(self.options).kind == LABELS
        chosen = self.options.metric or ("accuracy" if labelled else METRICS[kind][0])
        if chosen not in METRICS[kind]:
            raise ConfigError(f"--metric {chosen} is not for {kind}: use {', '.join(METRICS[kind])}, or pass --kind")
        names = self.names or tuple(dataset.notes.get(TARGETS, ()))
        if kind == "regression":
            from utils.metrics.regression import RegressionErrors

            return RegressionErrors(chosen, names)
        from utils.metrics.graph_labels import GraphClasses, GraphLabels

        if labelled and chosen == "roc_auc":
            raise ConfigError(f"--metric roc_auc: {self.model.ckpt} outputs labels, not scores; use --metric accuracy")
        how = {"scored": not labelled}
        return GraphLabels(chosen, names, **how) if kind == "binary" else GraphClasses(chosen, **how)

    def show(self, sample: Graph | Molecule, prediction: Array) -> Rendering:
        """Return the values by name; saving draws the graph with them."""
        kind, unit, names = self.kind, GraphNotes.of(self.model).unit, self.names
        if len(names) != len(prediction):
            names = tuple(f"{'class' if kind == 'classes' else 'value'} {place}" for place in range(len(prediction)))
        answer = {name: round(float(value), 4) for name, value in zip(names, prediction, strict=True)}
        if kind == "classes" and self.model.form(self.options).kind == LABELS:
            best = names[int(prediction.argmax())]
            return Rendering(best, {best: None}, partial(_save, sample, best))
        order = np.argsort(-prediction, kind="stable") if kind == "classes" else np.arange(len(prediction))
        words = [f"{names[place]} {prediction[place]:.2f}{f' {unit}' if unit else ''}" for place in order[:SHOWN]]
        more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
        text = ", ".join(words + more)
        return Rendering(text, answer, partial(_save, sample, text))

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return the range and mean of the first value, or how often each class comes first."""
        names, values = self.names, np.array(predictions)
        if self.kind == "classes":
            best, counts = np.unique(values.argmax(axis=1), return_counts=True)
            return ", ".join(f"{names[one] if names else one} x {n}" for one, n in zip(best, counts, strict=True))
        first = values[:, 0]
        return f"{names[0] if names else 'value'} from {first.min():.2f} to {first.max():.2f}, mean {first.mean():.2f}"

    def prediction_writer(self, path: Path, dataset: Dataset) -> Table:
        """Return a writer of CSV."""
        return Table(path, self.names)


def _refuse_larger(size: Size, limits: Limits, options: Options) -> None:
    """Raise DataError if a graph exceeds the room per graph in a packed batch, independent of the batch size."""
    if limits.nodes:
        nodes = sorted(options.nodes)
        refuse_larger(*size, Limits(nodes, _edges(options)))
    refuse_larger(*size, limits)


def _edges(options: Options) -> list[int]:
    """Return the numbers of messages of a graph in packed batches, rising."""
    return sorted(set(options.edges or ())) or [size * EDGES_PER_NODE for size in sorted(set(options.nodes))]


def _as(array: Array, spec: TensorSpec) -> Array:
    """Return an array in the dtype of an integer input; other arrays stay."""
    if spec.dtype.kind not in "iu":
        return array
    whole = np.rint(array)
    if not np.array_equal(whole, array):
        raise DataError(f"has node features that are not whole numbers, and input {spec.name!r} takes {spec.dtype}")
    return whole.astype(spec.dtype)


def sigmoid(values: Array) -> Array:
    """Return the logistic function of float64 values."""
    with np.errstate(invalid="ignore", over="ignore"):
        found: Array = 1 / (1 + np.exp(-values))
    return found


def _save(sample: Graph | Molecule, text: str, folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.graphs.drawn_graph import draw_graph, laid_out

    if isinstance(sample, Molecule):
        look, edges = look_of(sample)
    else:
        edges = sample.edges
        look = sample.look or laid_out(len(sample.nodes), edges)
    safe = "".join(letter if letter.isalnum() or letter in "-+=()[]," else "_" for letter in sample.name)[:80]
    return save_drawn(Path(f"{safe or 'graph'}.png"), [sample.name, text], folder, draw_graph(look, edges))


class Table:
    """Writer of a CSV file with a row per graph: its name and its values."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._names, self._rows = path, list(names), list[list[Any]]()

    def see(self, batch: Batch, predictions: Sequence[Array]) -> None:
        """Add a batch."""
        self._rows += [[name, *map(float, one)] for name, one in zip(batch.names, predictions, strict=True)]

    def close(self) -> None:
        """Write the file."""
        width = len(self._rows[0]) - 1 if self._rows else 0
        names = self._names if len(self._names) == width else [f"value_{place}" for place in range(width)]
        text = io.StringIO()
        csv.writer(text).writerows([["name", *names], *self._rows])
        write_predictions(self._path, text.getvalue())
