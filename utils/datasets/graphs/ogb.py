"""Graphs in the layout of the Open Graph Benchmark (Hu et al., 2020): tables of numbers as gzipped CSV files.

The folder of a data set, as downloaded and unpacked, or its ``raw``:

- ``num-node-list.csv.gz`` and ``num-edge-list.csv.gz``: numbers of nodes and edges, a line per graph.
- ``edge.csv.gz``: source and target of each edge, counted from 0 within its graph.
- ``node-feat.csv.gz``, ``edge-feat.csv.gz``: features of each node and of each edge; optional.
- ``graph-label.csv.gz`` (``node-label.csv.gz`` for one large graph): a line per graph, empty if unknown.
- next to ``raw``: ``split/SCHEME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz``: indices of graphs (or nodes).
- ``mapping/mol.csv.gz`` for molecules: their SMILES in the column ``smiles``, used as names.
- ``mapping/labelidx2*.csv*`` for one large graph: the optional names of the classes.

Files without ``.gz`` are read too. No content is pickled.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import reason_of
from tecoinfer_modelzoo.trees import below
from utils.datasets.graphs.files import SPLITS, Graph, Labelled

ONCE = ("products",)
"""Words in names of networks whose edges are stored in one direction and valid for both, as in OGB's loader."""

RATIO, FREE = 100, 2**24
"""Maximum size of an unpacked table: ``RATIO`` times the size of its file, plus ``FREE`` bytes."""


def is_ogb(folder: Path) -> bool:
    """Return whether a folder has this layout."""
    return folder.is_dir() and _find(_raw(folder), "edge") is not None


def read_ogb(folder: Path) -> list[Graph]:
    """Read all graphs, with edges in the order of the files; nodes without features get the feature 1.

    Raises DataError if a file is missing or damaged, or the files do not match one another.
    """
    raw = _raw(folder)
    nodes, edges = _counts(raw, "num-node-list"), _counts(raw, "num-edge-list")
    if len(nodes) != len(edges):
        raise DataError(f"{raw}: {len(nodes)} lines in num-node-list and {len(edges)} in num-edge-list; get it again")
    ends = table(raw, "edge")
    if ends.shape[1] != 2:
        raise DataError(f"{raw}: edge has {ends.shape[1]} columns; expected source and target")
    numbers = table(raw, "node-feat") if _find(raw, "node-feat") else np.ones((int(nodes.sum()), 1))
    values = table(raw, "edge-feat") if _find(raw, "edge-feat") else None
    for what, have, want in (
        ("edge", len(ends), edges.sum()),
        ("node-feat", len(numbers), nodes.sum()),
        ("edge-feat", edges.sum() if values is None else len(values), edges.sum()),
    ):
        if have != want:
            raise DataError(f"{raw}: {what} has {have} lines, but the counts add up to {want}; get the file again")
    names = _names(folder, len(nodes))
    node_ends, edge_ends = np.cumsum(nodes), np.cumsum(edges)
    graphs = []
    for place, name in enumerate(names):
        own = slice(node_ends[place] - nodes[place], node_ends[place])
        arcs = slice(edge_ends[place] - edges[place], edge_ends[place])
        weight = None if values is None else values[arcs].astype(np.float32)
        own_edges = np.ascontiguousarray(ends[arcs].T.astype(np.int64))
        graphs.append(Graph(numbers[own].astype(np.float32), own_edges, weight, name))
    return graphs


def labels(folder: Path, what: str = "graph") -> Array | None:
    """Return the targets of graphs (or of nodes), float64 [G, T], NaN for an empty field; ``None`` without such a file.

    Raises DataError if the file is damaged.
    """
    raw = _raw(folder)
    return table(raw, f"{what}-label") if _find(raw, f"{what}-label") else None


def split(folder: Path, part: str, scheme: str | None = None) -> Array:
    """Return the indices of a part of the data set, int64; the scheme may be ``None`` if there is only one.

    Raises ConfigError if the part or scheme is missing, or there are several schemes, and DataError if a file is
    damaged.
    """
    if part not in SPLITS:
        raise ConfigError(f"--split {part}: must be {', '.join(SPLITS)} or all")
    top = (folder.parent if folder.name == "raw" else folder) / "split"
    known = sorted(one.name for one in top.iterdir() if one.is_dir()) if top.is_dir() else []
    if not known:
        raise ConfigError(f"{top} has no folder with a split; use --split all, or get the data set again")
    if scheme is None and len(known) > 1:
        raise ConfigError(f"{top} has several schemes: {', '.join(known)}; choose one with --split {known[0]}/{part}")
    chosen = scheme or known[0]
    if chosen not in known:
        raise ConfigError(f"{top} has no {chosen!r}; available: {', '.join(known)}")
    found = table(top / chosen, part)
    return found[:, 0].astype(np.int64)


def table(folder: Path, name: str) -> Array:
    """Read a table of numbers, float64 [lines, columns]; an empty field is NaN.

    Raises DataError if the file is missing, damaged, or not a table of numbers.
    """
    file = _find(folder, name)
    if file is None:
        raise DataError(f"{folder}: {name}.csv.gz is missing; get the data set again")
    try:
        data = _content(file)
        lines = data.decode("ascii").splitlines()
        if any(not line or line[0] == "," or line[-1] == "," or ",," in line for line in lines):
            lines = [",".join(field or "nan" for field in line.split(",")) for line in lines]
        if not lines:
            return np.zeros((0, 2 if name == "edge" else 1))
        found: Array = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file}: not a table of numbers ({error}); get the file again") from error
    return found


def _content(file: Path) -> bytes:
    """Return the bytes of a file, unpacked; raise ValueError above the limit, and Exception if it is damaged."""
    packed = read_regular(file)
    if file.suffix != ".gz":
        return packed
    most = len(packed) * RATIO + FREE
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {most} bytes, the maximum for a table of its size")
    return found


def _counts(raw: Path, name: str) -> Array:
    found = table(raw, name)[:, 0]
    if not len(found) or (found < 0).any() or (found != np.floor(found)).any():
        raise DataError(f"{raw}: {name} needs one integer per graph, at least one; get the file again")
    return found.astype(np.int64)


def _names(folder: Path, count: int) -> list[str]:
    """Return the SMILES of molecules with their index, or else numbers."""
    top = folder.parent if folder.name == "raw" else folder
    file = _find(top / "mapping", "mol")
    plain = [f"graph {place}" for place in range(count)]
    if file is None:
        return plain
    try:
        data = _content(file)
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"))))
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise DataError(f"{file}: not a table with names ({error}); get the file again") from error
    found = [row.get("smiles") or "" for row in rows]
    if len(found) != count:
        return plain
    return [f"{place}: {smiles}" if smiles else plain[place] for place, smiles in enumerate(found)]


def _raw(folder: Path) -> Path:
    return folder / "raw" if (folder / "raw").is_dir() else folder


def _find(folder: Path, name: str) -> Path | None:
    return next((file for ending in (".csv.gz", ".csv") if (file := folder / f"{name}{ending}").is_file()), None)


def read_ogb_nodes(folder: Path) -> tuple[Labelled, Sequence[Path]]:
    """Return the graph with node classes of a folder, and the files that were read.

    Raises DataError if a file is missing or damaged, there are several graphs, or nodes have several or invalid labels.
    """
    graphs, given = read_ogb(folder), labels(folder, "node")
    if len(graphs) != 1:
        raise DataError(f"{folder}: {len(graphs)} graphs, expected one; graph_prediction classifies whole graphs")
    (graph,) = graphs
    if given is None:
        raise DataError(f"{folder}: node-label.csv.gz is missing; get the data set again")
    if given.shape != (len(graph.nodes), 1):
        raise DataError(
            f"{folder}: node-label has {given.shape[0]} rows of {given.shape[1]} labels for {len(graph.nodes)} nodes; "
            "expected one class per node"
        )
    known = np.where(np.isnan(given[:, 0]), -1, given[:, 0])
    if (known != np.floor(known)).any() or (known < -1).any():
        raise DataError(f"{folder}: node-label has an invalid class number; classes are 0, 1, 2, ...")
    name = folder.resolve().name
    classes = _class_names(folder, int(known.max(initial=-1)) + 1)
    parts, once = _parts(folder, len(known)), any(word in name for word in ONCE)
    found = Labelled(graph._replace(name=name), known.astype(np.int64), parts, classes, undirected=once)
    return found, sorted(file for file in below(folder, "*.csv*") if file.is_file())


def _parts(folder: Path, count: int) -> Array:
    """Return the part of each node; without a folder ``split`` all are test nodes."""
    if not (folder / "split").is_dir():
        return np.full(count, SPLITS.index("test"), np.int8)
    parts = np.full(count, -1, np.int8)
    for place, name in enumerate(SPLITS):
        numbers = split(folder, name)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
            raise DataError(f"{folder}: split {name} has node {numbers.max()}, but there are {count}; get it again")
        parts[numbers] = place
    return parts


def _class_names(folder: Path, count: int) -> tuple[str, ...]:
    """Return the classes' names from the second column of the mapping; empty if it is missing or incomplete."""
    file = next(iter(sorted(folder.glob("mapping/labelidx2*.csv*"))), None)
    if file is None:
        return ()
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if len(row) >= 2 and row[0].strip().isdecimal()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({reason_of(error)}); remove it, or get it again") from error
    found = {int(row[0]): row[1] for row in rows}
    return tuple(found[i] for i in range(count)) if all(i in found for i in range(count)) else ()
