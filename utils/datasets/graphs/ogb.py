"""Graphs in the layout of the Open Graph Benchmark (Hu et al., 2020): tables of numbers as gzipped CSV files.

The folder of a data set, or its ``raw``:

- ``num-node-list.csv.gz`` and ``num-edge-list.csv.gz``: numbers of nodes and edges, a line per graph.
- ``edge.csv.gz``: source and target of each edge, counted from 0 within its graph.
- ``node-feat.csv.gz``, ``edge-feat.csv.gz``: features of each node and of each edge; optional.
- ``graph-label.csv.gz`` (``node-label.csv.gz`` for one large graph): a line per graph, empty if unknown.
- next to ``raw``: ``split/SCHEME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz``: indices of graphs (or nodes).
- ``mapping/mol.csv.gz`` for molecules: their SMILES in the column ``smiles``, used as names.

Files without ``.gz`` are read too. No content is pickled.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import read_regular
from utils.datasets.graphs.files import Graph

PARTS = ("train", "valid", "test")

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
    """Return the targets, float64 [G, T], NaN for an empty field; ``None`` without such a file.

    Args:
        folder: the data set.
        what: ``graph`` or ``node``.

    Raises DataError if the file is damaged.
    """
    raw = _raw(folder)
    return table(raw, f"{what}-label") if _find(raw, f"{what}-label") else None


def split(folder: Path, part: str, scheme: str | None = None) -> Array:
    """Return the indices of a part of the data set, int64.

    Args:
        folder: the data set.
        part: one of :data:`PARTS`.
        scheme: the folder below ``split``; ``None``: the only one.

    Raises ConfigError if the part or scheme is missing, or there are several schemes, and DataError if a file is
    damaged.
    """
    if part not in PARTS:
        raise ConfigError(f"--split {part}: must be {', '.join(PARTS)} or all")
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
    """Return the bytes of a file, unpacked.

    Raises ValueError if its unpacked size exceeds the limit, and Exception if it is damaged.
    """
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
