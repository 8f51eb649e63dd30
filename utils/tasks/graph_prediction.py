"""Graph prediction: a graph in, such as a molecule, numbers or classes of the whole of it out."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, InputError, TensorSpec, engine_nums, one_line
from utils.datasets.base import Batch, Dataset, ListDataset
from utils.datasets.graph_sets import FEATURES, TARGETS, Wanted, load_graphs
from utils.datasets.graphs import Graph, both_ways, checked
from utils.datasets.molecules import Molecule, graph_of, look_of
from utils.metrics.base import Metric
from utils.outputs import DEFAULT, DTYPE, LABELS
from utils.preprocess.graphs.dense import dense
from utils.preprocess.graphs.messages import Messages, messages
from utils.preprocess.graphs.sparse import Limits, Part, block_diagonal, held, pack, refuse_larger
from utils.tasks.base import Artifact, Flag, Options, Saver, Task
from utils.tasks.graph_notes import KINDS, GraphNotes, dense_sizes, is_packed, packed_limits, places_of
from utils.tasks.graph_scores import probabilities_of, sigmoid, softmax
from utils.tasks.model import Model
from utils.tasks.outputs import KIND_FLAG
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


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the graphs (:func:`~utils.datasets.graph_sets.load_graphs`), for ``valid`` with what is right of each.

    The script for one sample takes the first graphs of a file, a batch of them.
    """
    chosen = {flag.key: getattr(options, flag.key, flag.default) for flag in FLAGS}
    wanted = Wanted(chosen["property"], chosen["smiles_column"], chosen["split"], options.script == "valid")
    if paths["data"].suffix.lower() == ".npz" and "property" in getattr(options, "given", ()):
        raise ConfigError(f"{paths['data']}: an .npz file holds its targets itself; leave out --property")
    found = load_graphs(paths["data"], wanted)
    return found.select(range(min(len(found), options.batch_size))) if options.script == "single" else found


def typed(options: Options) -> Dataset | None:
    """Return the molecules of ``--smiles``."""
    given = getattr(options, "smiles", None)
    if not given:
        return None
    return ListDataset([Molecule(smiles, False, smiles) for smiles in given], names=list(given))


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> dict[str, int]:
    """Return the places of the inputs; refuse data whose nodes have other numbers than the model was trained with.

    Raises:
        ConfigError: the maker of the data stored other features than the export.
    """
    (engine,) = engines.values()
    model = Model.of(engine)
    notes, made = GraphNotes.of(model), dataset.notes.get(FEATURES, "")
    if made and notes.atoms is not None:
        import json

        try:
            known = json.loads(made)
        except ValueError as error:
            raise ConfigError(f"the data's features are no JSON ({one_line(error)}); make the file again") from error
        if known != notes.atoms.stored():
            raise ConfigError(
                f"the numbers of a node in the data are not those that {model.ckpt.name} was trained with; make the "
                "file of graphs again with this model's features (docs/gnn.md)"
            )
    return places_of(model)


def prepare(samples: Sequence[Graph | Molecule], model: Model, options: Options) -> Prepared:
    """Make graphs of molecules, weigh their edges, and lay them out as the model takes them.

    Returns:
        For a dense model one array per graph and input; for a packed one nodes and messages, which :func:`collate`
        packs. A :class:`Size` for each.

    Raises:
        DataError: a molecule does not parse; a graph has no edges, or too many nodes.
        ModelError: the model's inputs or metadata are not those of a graph network.
    """
    notes, packed, places = GraphNotes.of(model), is_packed(model), places_of(model)
    parts = [_part(sample, notes, model, options) for sample in samples]
    sizes: list[Any] = [Size(len(part.nodes), len(part.found.source)) for part in parts]
    if packed:
        for size in sizes:
            _refuse_larger(size, packed_limits(model), options)
        return Prepared(
            [[part.nodes for part in parts], *map(list, zip(*(part.found for part in parts), strict=True))], sizes
        )
    planned = dense_sizes(model)
    for size in sizes:
        if planned and size.nodes > planned[-1]:
            raise DataError(
                f"has {size.nodes} nodes, and {model.ckpt.name} has plans for {planned[-1]} at most (of "
                f"{', '.join(map(str, planned))}); give --nodes {' '.join(map(str, planned))} {size.nodes}, "
                "or leave it out"
            )
    rows = [dense(part.nodes, part.found) for part in parts]
    columns: list[list[Array]] = [[] for _ in places]
    for name, place in places.items():
        columns[place] = [_as(getattr(row, "nodes" if name == "x" else name), model.inputs[place]) for row in rows]
    return Prepared(columns, sizes)


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


def _part(sample: Graph | Molecule, notes: GraphNotes, model: Model, options: Options) -> Part:
    """Return the nodes of a graph and its messages."""
    if isinstance(sample, Molecule):
        if notes.atoms is None:
            raise ConfigError(
                f"{model.ckpt}: does not store what the numbers of an atom are (metadata 'graph', 'atoms'), so it "
                "takes no molecules; give it a file of graphs, or export it with them"
            )
        graph = graph_of(sample, notes.atoms)
    else:
        graph = checked(sample)
    spec = model.inputs[places_of(model)["x"]]
    width = spec.shape[-1] if spec.shape else None
    if width is not None and graph.nodes.shape[1] != width:
        raise ConfigError(
            f"{sample.name} has {graph.nodes.shape[1]} numbers per node, and {model.ckpt.name} takes {width}; give it "
            "graphs with the numbers that it was trained with"
        )
    if not graph.edges.shape[1] and options.no_edges == "refuse":
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


def _as(array: Array, spec: TensorSpec) -> Array:
    """Return an array in the dtype of an input, where that takes whole numbers and the array holds such."""
    if spec.dtype.kind not in "iu":
        return array
    whole = np.rint(array)
    if not np.array_equal(whole, array):
        raise DataError(f"has fractions among the numbers of its nodes, and input {spec.name!r} takes {spec.dtype}")
    return whole.astype(spec.dtype)


def collate(parts: Sequence[Prepared], model: Model) -> list[Array] | Shards:
    """Pad dense graphs to one size; pack others into block-diagonal batches, one after another for each SPA."""
    if not is_packed(model):
        from utils.tasks.collating import collate as padded

        return padded(parts, model)
    limits, places = packed_limits(model), places_of(model)
    rows = [row for part in parts for row in zip(*part.arrays, strict=True)]
    graphs = [Part(nodes, Messages(*found)) for nodes, *found in rows]
    shards = Shards()
    for batch in pack([(len(one.nodes), len(one.found.source)) for one in graphs], limits):
        packed = block_diagonal(graphs[batch.start : batch.stop], limits)
        arrays = [packed.x] * len(places)
        for name, place in places.items():
            array, spec = getattr(packed, name), model.inputs[place]
            arrays[place] = _as(array, spec) if name == "x" and spec.dtype.kind in "iu" else array.astype(spec.dtype)
        shards.append(arrays)
    return shards


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Any, state: Mapping[str, int]) -> Array:
    """Return the model's first output for each graph, N x T; of a packed batch without those that fill it up."""
    (engine,) = engines.values()
    if not isinstance(arrays, Shards):
        outputs = engine(arrays)
        return outputs[0] if isinstance(outputs, list) else outputs
    results = engine.call_shards(arrays)
    kept = [held(shard[state["member"]], shard[state["share"]]) for shard in arrays]
    return np.concatenate([result[0][:count] for result, count in zip(results, kept, strict=True)])


def open_sizes(options: Options) -> dict[str, dict[Any, tuple[int, ...]]]:
    """Return the sizes that a graph is padded to, and those of a packed batch: as many graphs as a SPA gets of a call.

    A packed batch has room for so many graphs of each of these sizes, with :data:`EDGES_PER_NODE` messages per node
    unless ``--edges`` says how many a graph has.
    """
    sizes = sorted(set(options.nodes))
    each = -(-options.batch_size // engine_nums())
    rooms = {
        "nodes": sizes,
        "all_nodes": [size * each for size in sizes],
        "all_edges": [size * each for size in _edges(options)],
        "graphs": [each],
    }
    return {"model": {symbol: tuple(values) for symbol, values in rooms.items()}}


def kind_of(model: Model, options: Options) -> str:
    """Return what the model gives: what ``--kind`` says, else what is stored, else classes where the graph ends in a
    softmax or chooses one, else numbers."""
    known = getattr(options, "kind", None) or GraphNotes.of(model).kind
    if known:
        return str(known)
    form = model.form(options)
    classes = form.operator in ("Softmax", "LogSoftmax", "ArgMax", "ArgMin")
    return "classes" if classes else KINDS[0]


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> list[Array]:
    """Return the answer to each graph, float64: T numbers, T probabilities, or those of C classes.

    Raises:
        InputError: the output is not N x T numbers, or of one class only.
    """
    found = np.asarray(outputs)
    found = found[:, None] if found.ndim == 1 else found
    kind = kind_of(model, options)
    if kind != KINDS[0] and model.form(options).source not in (DEFAULT, DTYPE):
        return probabilities_of(found, kind == "binary", model, options)
    if found.ndim != 2 or found.dtype.kind != "f" or (kind == "classes" and found.shape[1] < 2):
        raise InputError(
            f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; {kind} of graphs takes "
            "N x T floating-point numbers" + (", two classes or more" if kind == "classes" else "")
        )
    values = found.astype(np.float64)
    if kind == "regression":
        return list(values)
    return list(sigmoid(values) if kind == "binary" else softmax(values))


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of the model's kind, the one of record as ``--metric`` says.

    Raises:
        ConfigError: that kind has no such metric, or the model gives labels and it needs scores.
    """
    kind = kind_of(model, options)
    labelled = kind != KINDS[0] and model.form(options).kind == LABELS
    chosen = options.metric or ("accuracy" if labelled else METRICS[kind][0])
    if chosen not in METRICS[kind]:
        raise ConfigError(f"--metric {chosen} is none of {kind}: use {', '.join(METRICS[kind])}, or say --kind")
    names = names_of(model) or tuple(dataset.notes.get(TARGETS, ()))
    if kind == "regression":
        from utils.metrics.regression import RegressionErrors

        return RegressionErrors(chosen, names)
    from utils.metrics.graph_labels import GraphClasses, GraphLabels

    if labelled and chosen == "roc_auc":
        raise ConfigError(f"--metric roc_auc: {model.ckpt} gives labels and no scores; use --metric accuracy")
    how = {"scored": not labelled}
    return GraphLabels(chosen, names, **how) if kind == "binary" else GraphClasses(chosen, **how)


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of what the model gives; empty where it stores none."""
    return GraphNotes.of(model).targets or tuple(model.stored.labels or ())


def show(sample: Graph | Molecule, prediction: Array, model: Model, options: Options) -> Artifact:
    """Return the values by name; saving draws the graph with them."""
    kind, unit = kind_of(model, options), GraphNotes.of(model).unit
    names = names_of(model)
    if len(names) != len(prediction):
        names = tuple(f"{'class' if kind == 'classes' else 'value'} {place}" for place in range(len(prediction)))
    answer = {name: round(float(value), 4) for name, value in zip(names, prediction, strict=True)}
    if kind == "classes" and model.form(options).kind == LABELS:
        best = names[int(prediction.argmax())]
        return Artifact(best, {best: None}, partial(_save, sample, best))
    order = np.argsort(-prediction, kind="stable") if kind == "classes" else np.arange(len(prediction))
    words = [f"{names[place]} {prediction[place]:.2f}{f' {unit}' if unit else ''}" for place in order[:SHOWN]]
    more = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    text = ", ".join(words + more)
    return Artifact(text, answer, partial(_save, sample, text))


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


def summary(predictions: Sequence[Array], model: Model, options: Options) -> str:
    """Say from where to where the first value goes, or which classes come first."""
    names, values = names_of(model), np.array(predictions)
    if kind_of(model, options) == "classes":
        best, counts = np.unique(values.argmax(axis=1), return_counts=True)
        return ", ".join(f"{names[one] if names else one} x {n}" for one, n in zip(best, counts, strict=True))
    first = values[:, 0]
    return f"{names[0] if names else 'value'} from {first.min():.2f} to {first.max():.2f}, mean {first.mean():.2f}"


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
        try:
            with self._path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([["name", *names], *self._rows])
        except OSError as error:
            raise ConfigError(
                f"--save_predictions: {self._path} cannot be written ({error.strerror or error})"
            ) from error


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes the answers."""
    return Table(path, names_of(model))


def check(options: Options) -> None:
    """Refuse sizes that cannot be.

    Raises:
        ConfigError: names the flag.
    """
    for flag in ("nodes", "edges"):
        values = getattr(options, flag) or ()
        if any(value < 1 for value in values):
            raise ConfigError(f"--{flag} {' '.join(map(str, values))} must be at least 1 each")


FLAGS = (
    Flag("--smiles", "molecules to run instead of data", None, nargs="+", metavar="SMILES"),
    Flag("--property", "names of the SDF data, or columns, that hold what is right", [], nargs="+", metavar="NAME"),
    Flag("--smiles_column", "column of the SMILES, where its name is not a usual one", None, metavar="NAME"),
    Flag("--split", "of OGB's folders: train, valid, test, SCHEME/test or all (default: test)", None),
    Flag("--nodes", "nodes that a graph is padded to: the card has a plan for each", [16, 32, 64], int, nargs="+"),
    Flag(
        "--edges", "edges of a graph in packed batches, for each of --nodes (default: 4 per node)", None, int, nargs="+"
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

GRAPH_PREDICTION = Task(
    name="graph_prediction",
    domain="gnn",
    first=True,
    load=load,
    typed=typed,
    setup=setup,
    prepare=prepare,
    collate=collate,
    infer=infer,
    decode=decode,
    metric=metric,
    show=show,
    summary=summary,
    open_sizes=open_sizes,
    check=check,
    flags=FLAGS,
    watched=False,
    template=TEMPLATE,
    data_help="graphs in an .npz file, molecules as .sdf, .csv, .tsv or .smi, a folder of these, or OGB's folder",
    saver=saver,
    saves="the answers as CSV",
)
"""Padded to a matrix, or packed into block-diagonal batches: the model's inputs say which."""
