"""Graphs as the Open Graph Benchmark lays them out (Hu et al., 2020): tables of numbers, each a gzipped CSV file.

The folder of a data set, or its ``raw``:

- ``num-node-list.csv.gz`` and ``num-edge-list.csv.gz``: how many nodes and edges each graph has, a line per graph.
- ``edge.csv.gz``: source and target of each edge, counted from 0 within its graph.
- ``node-feat.csv.gz``, ``edge-feat.csv.gz``: the numbers of each node and of each edge, where there are any.
- ``graph-label.csv.gz`` (``node-label.csv.gz`` for one large graph): a line per graph, empty where one is not known.
- beside ``raw``: ``split/SCHEME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz``: numbers of graphs (or nodes).
- ``mapping/mol.csv.gz`` of molecules: their SMILES in the column ``smiles``, used for names.

Files without ``.gz`` are read too. Nothing is pickled.
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
"""A packed table has at most ``RATIO`` times as many bytes as its file, and ``FREE`` more."""


def is_ogb(folder: Path) -> bool:
    """Say whether a folder has this layout."""
    return folder.is_dir() and _find(_raw(folder), "edge") is not None


def read_ogb(folder: Path) -> list[Graph]:
    """Read all graphs, with their edges as the files list them; a node without numbers has a single 1.

    Raises:
        DataError: a file is missing or damaged, or they do not fit one another.
    """
    raw = _raw(folder)
    nodes, edges = _counts(raw, "num-node-list"), _counts(raw, "num-edge-list")
    if len(nodes) != len(edges):
        raise DataError(f"{raw}: {len(nodes)} lines in num-node-list and {len(edges)} in num-edge-list; get it again")
    ends = table(raw, "edge")
    if ends.shape[1] != 2:
        raise DataError(f"{raw}: edge has {ends.shape[1]} columns; it needs source and target")
    numbers = table(raw, "node-feat") if _find(raw, "node-feat") else np.ones((int(nodes.sum()), 1))
    values = table(raw, "edge-feat") if _find(raw, "edge-feat") else None
    for what, have, want in (
        ("edge", len(ends), edges.sum()),
        ("node-feat", len(numbers), nodes.sum()),
        ("edge-feat", edges.sum() if values is None else len(values), edges.sum()),
    ):
        if have != want:
            raise DataError(f"{raw}: {what} has {have} lines, the counts add up to {want}; get the file again")
    names = _names(folder, len(nodes))
    node_ends, edge_ends = np.cumsum(nodes), np.cumsum(edges)
    graphs = []
    for place, name in enumerate(names):
        own = slice(node_ends[place] - nodes[place], node_ends[place])
        arcs = slice(edge_ends[place] - edges[place], edge_ends[place])
        graphs.append(
            Graph(
                numbers[own].astype(np.float32),
                np.ascontiguousarray(ends[arcs].T.astype(np.int64)),
                None if values is None else values[arcs].astype(np.float32),
                name,
            )
        )
    return graphs


def labels(folder: Path, what: str = "graph") -> Array | None:
    """Return what is right, float64 [G, T], NaN where a field is empty; ``None`` without such a file.

    Args:
        what: ``graph`` or ``node``.

    Raises:
        DataError: the file is damaged.
    """
    raw = _raw(folder)
    return table(raw, f"{what}-label") if _find(raw, f"{what}-label") else None


def split(folder: Path, part: str, scheme: str | None = None) -> Array:
    """Return the places of a part of the data set, int64.

    Args:
        part: one of :data:`PARTS`. scheme: the folder below ``split``; ``None``: the only one.

    Raises:
        ConfigError: there is no such part or scheme, or there are several schemes. DataError: a file is damaged.
    """
    if part not in PARTS:
        raise ConfigError(f"--split {part}: the parts are {', '.join(PARTS)}, or all")
    top = (folder.parent if folder.name == "raw" else folder) / "split"
    known = sorted(one.name for one in top.iterdir() if one.is_dir()) if top.is_dir() else []
    if not known:
        raise ConfigError(f"{top} has no folder with a split; say --split all, or get the data set again")
    if scheme is None and len(known) > 1:
        raise ConfigError(f"{top} has several: {', '.join(known)}; choose one with --split {known[0]}/{part}")
    chosen = scheme or known[0]
    if chosen not in known:
        raise ConfigError(f"{top} has no {chosen!r}; there are {', '.join(known)}")
    found = table(top / chosen, part)
    return found[:, 0].astype(np.int64)


def table(folder: Path, name: str) -> Array:
    """Read a table of numbers, float64 [lines, columns]; an empty field is NaN.

    Raises:
        DataError: it is missing, damaged, or no table of numbers.
    """
    file = _find(folder, name)
    if file is None:
        raise DataError(f"{folder}: there is no {name}.csv.gz; get the data set again")
    try:
        data = _content(file)
        lines = data.decode("ascii").splitlines()
        if any(not line or line[0] == "," or line[-1] == "," or ",," in line for line in lines):
            lines = [",".join(field or "nan" for field in line.split(",")) for line in lines]
        if not lines:
            return np.zeros((0, 2 if name == "edge" else 1))
        found: Array = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file}: is no table of numbers ({error}); get the file again") from error
    return found


def _content(file: Path) -> bytes:
    """Return the bytes of a file, unpacked.

    Raises:
        ValueError: it unpacks to far more than a table does. Exception: it is damaged.
    """
    packed = read_regular(file)
    if file.suffix != ".gz":
        return packed
    most = len(packed) * RATIO + FREE
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise ValueError(f"it unpacks to more than {most} bytes, which no table of its size does")
    return found


def _counts(raw: Path, name: str) -> Array:
    found = table(raw, name)[:, 0]
    if not len(found) or (found < 0).any() or (found != np.floor(found)).any():
        raise DataError(f"{raw}: {name} needs a whole number per graph, one at least; get the file again")
    return found.astype(np.int64)


def _names(folder: Path, count: int) -> list[str]:
    """Return the SMILES of molecules, each once with its place where several are equal, or else numbers."""
    top = folder.parent if folder.name == "raw" else folder
    file = _find(top / "mapping", "mol")
    plain = [f"graph {place}" for place in range(count)]
    if file is None:
        return plain
    try:
        data = _content(file)
        rows = list(csv.DictReader(io.StringIO(data.decode("utf-8"))))
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise DataError(f"{file}: is no table with names ({error}); get the file again") from error
    found = [row.get("smiles") or "" for row in rows]
    if len(found) != count:
        return plain
    return [f"{place}: {smiles}" if smiles else plain[place] for place, smiles in enumerate(found)]


def _raw(folder: Path) -> Path:
    return folder / "raw" if (folder / "raw").is_dir() else folder


def _find(folder: Path, name: str) -> Path | None:
    return next((file for ending in (".csv.gz", ".csv") if (file := folder / f"{name}{ending}").is_file()), None)
