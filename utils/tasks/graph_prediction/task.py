"""Graph prediction: a graph in, such as a molecule, numbers or classes of the whole of it out."""

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
from utils.datasets.graphs.files import Graph, both_ways, checked
from utils.datasets.graphs.molecules import Molecule, graph_of, look_of
from utils.datasets.graphs.sets import FEATURES, TARGETS, Wanted, load_graphs
from utils.metrics.base import Metric
from utils.outputs import DEFAULT, DTYPE, LABELS, LOG_PROBABILITIES, PROBABILITIES
from utils.preprocess.graphs.dense import dense
from utils.preprocess.graphs.messages import Messages, messages
from utils.preprocess.graphs.sparse import Limits, Part, block_diagonal, held, pack, refuse_larger
from utils.tasks.base import Flag, Options, Rendering, Task
from utils.tasks.common.checks import at_least
from utils.tasks.common.class_scores import softmax
from utils.tasks.common.outputs import KIND_FLAG, check_probabilities, class_rows, labels_of
from utils.tasks.common.prediction_files import write_predictions
from utils.tasks.graph_prediction.notes import KINDS, GraphNotes, dense_sizes, is_packed, packed_limits, places_of
from utils.tasks.legacy import LegacyTask
from utils.tasks.prepared import Prepared, Shards
from utils.tasks.templates.rings import TEMPLATE

EDGES_PER_NODE = 4
"""Edges that a packed batch has room for, for each node: of a molecule's bonds, both ways, and a loop."""

METRICS = {
    "regression": ("rmse", "mae", "r2"),
    "binary": ("roc_auc", "accuracy"),
    "classes": ("accuracy", "roc_auc"),
}
"""The metrics of each kind of answer, that of record first."""

SHOWN = 4
"""Values that the answer's line names; the JSON has all."""


class Size(NamedTuple):
    """What is kept of a graph: how many nodes it has, and how many messages pass along its edges and loops."""

    nodes: int
    messages: int


class GraphPrediction(Task):
    """Padded to a matrix, or packed into block-diagonal batches: the model's inputs say which."""

    name, domain, domain_default, template = "graph_prediction", "gnn", True, TEMPLATE
    data_help = "graphs in an .npz file, molecules as .sdf, .csv, .tsv or .smi, a folder of these, or OGB's folder"
    writes = "the answers as CSV"
    flags = (
        Flag("--smiles", "molecules to run instead of data", None, nargs="+", metavar="SMILES"),
        Flag("--property", "names of the SDF data, or columns, that hold what is right", [], nargs="+", metavar="NAME"),
        Flag("--smiles_column", "column of the SMILES, where its name is not a usual one", None, metavar="NAME"),
        Flag("--split", "of OGB's folders: train, valid, test, SCHEME/test or all (default: test)", None),
        Flag("--nodes", "nodes that a graph is padded to: the card has a plan for each", [16, 32, 64], int, nargs="+"),
        Flag(
            "--edges",
            "edges of a graph in packed batches, for each of --nodes (default: 4 per node)",
            None,
            int,
            nargs="+",
        ),
        Flag("--no_edges", "what is done with a graph without edges", "refuse", choices=("refuse", "answer")),
        KIND_FLAG,
        Flag("--kind", "what the model gives, where it does not store it", None, choices=KINDS),
        Flag(
            "--metric",
            "the metric of record (default: rmse, roc_auc or accuracy, by the kind)",
            None,
            choices=("rmse", "mae", "r2", "roc_auc", "accuracy"),
            scripts=("valid",),
        ),
    )

    def check(self) -> None:
        """Check ``--nodes`` and ``--edges``."""
        at_least(self.options, nodes=1, edges=1)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return graphs (:func:`~utils.datasets.graphs.sets.load_graphs`), for ``valid`` with what is right of each.

        The script for one sample takes the first graphs of a file, a batch of them.
        """
        options = self.options
        wanted = Wanted(options.property, options.smiles_column, options.split, options.script == "valid")
        if paths["data"].suffix.lower() == ".npz" and "property" in getattr(options, "given", ()):
            raise ConfigError(f"{paths['data']}: an .npz file holds its targets itself; leave out --property")
        return self.selected(load_graphs(paths["data"], wanted))

    def inline_samples(self) -> Dataset | None:
        """Return the molecules of ``--smiles``."""
        given = self.options.smiles
        if not given:
            return None
        return ListDataset([Molecule(smiles, False, smiles) for smiles in given], names=list(given))

    def open_sizes(self) -> dict[str, dict[Any, tuple[int, ...]]]:
        """Return the sizes that a graph is padded to, and those of a packed batch: as many graphs as a SPA gets.

        A packed batch has room for so many graphs of each of these sizes, with :data:`EDGES_PER_NODE` messages per node
        unless ``--edges`` says how many a graph has.
        """
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
        """Refuse data whose nodes have other numbers than the model was trained with.

        Raises:
            ConfigError: the maker of the data stored other features than the export. ModelError: no graph network.
        """
        places_of(self.model)
        notes, made = GraphNotes.of(self.model), dataset.notes.get(FEATURES, "")
        if not made or notes.atoms is None:
            return
        try:
            known = json.loads(made)
        except ValueError as error:
            raise ConfigError(f"the data's features are no JSON ({one_line(error)}); make the file again") from error
        if known != notes.atoms.stored():
            raise ConfigError(
                f"the numbers of a node in the data are not those that {self.model.ckpt.name} was trained with; make "
                "the file of graphs again with this model's features (docs/gnn.md)"
            )

    def prepare(self, samples: Sequence[Graph | Molecule]) -> Prepared:
        """Make graphs of molecules, weigh their edges, and lay them out as the model takes them.

        Returns:
            For a dense model one array per graph and input; for a packed one nodes and messages, which :meth:`collate`
            packs. A :class:`Size` for each.

        Raises:
            DataError: a molecule does not parse; a graph has no edges, or too many nodes.
            ModelError: the model's inputs or metadata are not those of a graph network.
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
                    f"has {size.nodes} nodes, and {model.ckpt.name} has plans for {planned[-1]} at most (of {listed}); "
                    f"give --nodes {' '.join(map(str, planned))} {size.nodes}, or leave it out"
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
                f"{model.ckpt}: does not store what the numbers of an atom are (metadata 'graph', 'atoms'), so it "
                "takes no molecules; give it a file of graphs, or export it with them"
            )
        spec = model.inputs[places_of(model)["x"]]
        width = spec.shape[-1] if spec.shape else None
        if width is not None and graph.nodes.shape[1] != width:
            raise ConfigError(
                f"{sample.name} has {graph.nodes.shape[1]} numbers per node, and {model.ckpt.name} takes {width}; give "
                "it graphs with the numbers that it was trained with"
            )
        if not graph.edges.shape[1] and self.options.no_edges == "refuse":
            raise DataError(
                f"has no edges ({len(graph.nodes)} nodes), so there is nothing to pass along; add its edges, or say "
                "--no_edges answer"
            )
        graph = graph if notes.directed else both_ways(graph)
        values = None
        if notes.edge_values:
            if graph.weights is None:
                raise DataError("has no edge weights, which the model was trained with; add them")
            values = graph.weights[:, 0]
        found = messages(len(graph.nodes), graph.edges, notes.messages, loops=notes.loops, values=values)
        return Part(graph.nodes, found)

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Pad dense graphs to one size; pack others into block-diagonal batches, one after another for each SPA."""
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
        """Return the model's first output for each graph, N x T; of a packed batch without those that fill it up."""
        (engine,) = engines.values()
        if not isinstance(arrays, Shards):
            outputs = engine(arrays)
            return outputs[0] if isinstance(outputs, list) else outputs
        places, results = places_of(self.model), engine.call_shards(arrays)
        kept = [held(shard[places["member"]], shard[places["share"]]) for shard in arrays]
        return np.concatenate([result[0][:count] for result, count in zip(results, kept, strict=True)])

    @property
    def kind(self) -> str:
        """What the model gives, one of :data:`.KINDS`: what ``--kind`` says, else what is stored, else classes where
        the graph ends in a softmax or chooses one, else numbers."""
        known = self.options.kind or GraphNotes.of(self.model).kind
        if known:
            return str(known)
        classes = self.model.form(self.options).operator in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin")
        return "classes" if classes else KINDS[0]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what the model gives; empty where it stores none."""
        return GraphNotes.of(self.model).targets or tuple(self.model.stored.labels or ())

    def decode(self, outputs: Any, contexts: Any) -> list[Array]:
        """Return the answer to each graph, float64: T numbers, T probabilities, or those of C classes.

        Raises:
            InputError: the output is not N x T numbers, or of one class only, or no probabilities where it should be.
            ModelError: as many labels are stored as there are no classes, or it cannot be known what the output is.
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
                "takes N x T floating-point numbers" + (", two classes or more" if kind == "classes" else "")
            )
        values = found.astype(np.float64)
        if kind == "regression":
            return list(values)
        return list(sigmoid(values) if kind == "binary" else softmax(values))

    def _of_two(self, found: Array) -> list[Array]:
        """Return T probabilities of each graph, of N x T logits, probabilities or labels."""
        model = self.model
        if found.ndim != 2:
            raise InputError(f"{model.ckpt}: its output has shape {shape_text(found.shape)}; N x T numbers are needed")
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
        """Return the metric of the model's kind, the one of record as ``--metric`` says.

        Raises:
            ConfigError: that kind has no such metric, or the model gives labels and it needs scores.
        """
        kind = self.kind
        labelled = kind != KINDS[0] and self.model.form(self.options).kind == LABELS
        chosen = self.options.metric or ("accuracy" if labelled else METRICS[kind][0])
        if chosen not in METRICS[kind]:
            raise ConfigError(f"--metric {chosen} is none of {kind}: use {', '.join(METRICS[kind])}, or say --kind")
        names = self.names or tuple(dataset.notes.get(TARGETS, ()))
        if kind == "regression":
            from utils.metrics.regression import RegressionErrors

            return RegressionErrors(chosen, names)
        from utils.metrics.graph_labels import GraphClasses, GraphLabels

        if labelled and chosen == "roc_auc":
            raise ConfigError(f"--metric roc_auc: {self.model.ckpt} gives labels and no scores; use --metric accuracy")
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
        """Say from where to where the first value goes, or which classes come first."""
        names, values = self.names, np.array(predictions)
        if self.kind == "classes":
            best, counts = np.unique(values.argmax(axis=1), return_counts=True)
            return ", ".join(f"{names[one] if names else one} x {n}" for one, n in zip(best, counts, strict=True))
        first = values[:, 0]
        return f"{names[0] if names else 'value'} from {first.min():.2f} to {first.max():.2f}, mean {first.mean():.2f}"

    def prediction_writer(self, path: Path, dataset: Dataset) -> Table:
        """Return what writes the answers."""
        return Table(path, self.names)


def _refuse_larger(size: Size, limits: Limits, options: Options) -> None:
    """Refuse a graph for a packed batch by what each graph has room for, whatever the size of the batch.

    Raises:
        DataError: it is larger.
    """
    if limits.nodes:
        nodes = sorted(options.nodes)
        refuse_larger(*size, Limits(nodes, _edges(options)))
    refuse_larger(*size, limits)


def _edges(options: Options) -> list[int]:
    """Return the messages that a graph may have in packed batches, rising."""
    return sorted(set(options.edges or ())) or [size * EDGES_PER_NODE for size in sorted(set(options.nodes))]


def _as(array: Array, spec: TensorSpec) -> Array:
    """Return an array in the dtype of an input, where that takes whole numbers and the array holds such."""
    if spec.dtype.kind not in "iu":
        return array
    whole = np.rint(array)
    if not np.array_equal(whole, array):
        raise DataError(f"has fractions among the numbers of its nodes, and input {spec.name!r} takes {spec.dtype}")
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
    """Writes the answers as a CSV file: a row per graph, its name and its values."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._names, self._rows = path, list(names), list[list[Any]]()

    def see(self, batch: Batch, predictions: Sequence[Array]) -> None:
        """Take in a batch."""
        self._rows += [[name, *map(float, one)] for name, one in zip(batch.names, predictions, strict=True)]

    def close(self) -> None:
        """Write the file."""
        width = len(self._rows[0]) - 1 if self._rows else 0
        names = self._names if len(self._names) == width else [f"value_{place}" for place in range(width)]
        text = io.StringIO()
        csv.writer(text).writerows([["name", *names], *self._rows])
        write_predictions(self._path, text.getvalue())


GRAPH_PREDICTION = LegacyTask.view(GraphPrediction)  # for scripts that call dataclasses.replace
