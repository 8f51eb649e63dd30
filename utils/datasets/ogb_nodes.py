"""OGB's folder of one graph whose nodes have classes (Hu et al., 2020), as it is downloaded and unpacked.

``raw/edge.csv.gz``, ``raw/node-feat.csv.gz`` and ``raw/node-label.csv.gz`` hold the graph, ``split/NAME/`` which nodes
are in ``train``, ``valid`` and ``test``; ``mapping/labelidx2*.csv.gz`` the classes' names, where it is there. The files
may be unpacked (``.csv``) too.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine import Array, DataError
from utils.datasets.graphs import Graph
from utils.datasets.node_graphs import SPLITS, Labelled

ONCE = ("products",)
"""Words in names of networks whose edges are written in one direction and hold for both, as OGB's loader says."""


def find_ogb(folder: Path) -> Path | None:
    """Return the file with the edges of an OGB folder."""
    return next((file for file in (_find(folder, "raw/edge"), _find(folder, "edge")) if file is not None), None)


def read_ogb(folder: Path) -> tuple[Labelled, Sequence[Path]]:
    """Return the graph of a folder, and the files that were read.

    Raises:
        DataError: a file is missing or damaged, or nodes have several labels or numbers that are no classes.
    """
    edges_file = find_ogb(folder)
    raw = (edges_file or folder).parent
    files = {name: _there(raw, name) for name in ("edge", "node-feat", "node-label")}
    edges = _numbers(files["edge"], np.int64)
    x, labels = _numbers(files["node-feat"], np.float32), _numbers(files["node-label"], np.float64)
    if edges.shape[1] != 2:
        raise DataError(f"{files['edge']}: {edges.shape[1]} columns; an edge is a source and a target")
    if labels.shape != (len(x), 1):
        raise DataError(
            f"{files['node-label']}: {labels.shape[0]} rows of {labels.shape[1]} labels for {len(x)} nodes; this task "
            "takes one class per node"
        )
    known = np.where(np.isnan(labels[:, 0]), -1, labels[:, 0])
    if (known != np.floor(known)).any() or (known < -1).any():
        raise DataError(f"{files['node-label']}: holds what is no class number; classes are 0, 1, 2, ...")
    parts, read = _splits(folder if (folder / "split").is_dir() else raw.parent, len(x))
    mapping = next(iter(sorted(folder.glob("mapping/labelidx2*.csv*"))), None)
    name = folder.resolve().name
    classes = () if mapping is None else _names(mapping, int(known.max()) + 1)
    found = Labelled(
        Graph(x, edges.T.copy(), name=name), known.astype(np.int64), parts, classes,
        undirected=any(word in name for word in ONCE),
    )  # fmt: skip
    return found, [*files.values(), *read]


def _find(folder: Path, name: str) -> Path | None:
    return next((file for end in (".csv.gz", ".csv") if (file := folder / f"{name}{end}").is_file()), None)


def _there(folder: Path, name: str) -> Path:
    found = _find(folder, name)
    if found is None:
        raise DataError(f"{folder / name}.csv.gz: is not there; an OGB folder has edge, node-feat and node-label")
    return found


def _numbers(file: Path, dtype: type) -> Array:
    """Return the rows of a file as numbers; an empty field is NaN."""
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as stream:
            return np.loadtxt(stream, dtype, delimiter=",", ndmin=2, comments=None)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if dtype is np.float64 and isinstance(error, ValueError):
            return _with_gaps(file)
        raise DataError(f"{file}: cannot be read as rows of numbers ({_short(error)}); get it again") from error


def _with_gaps(file: Path) -> Array:
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as stream:
            rows = [[float(field) if field.strip() else np.nan for field in row] for row in csv.reader(stream)]
        return np.array([row or [np.nan] for row in rows], np.float64)
    except ValueError as error:
        raise DataError(f"{file}: cannot be read as rows of numbers ({_short(error)}); get it again") from error


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:100] if str(error) else type(error).__name__


def _splits(folder: Path, count: int) -> tuple[Array, list[Path]]:
    """Return the part of each node, and the files; without a split all are test nodes."""
    kinds = sorted(one for one in (folder / "split").glob("*") if one.is_dir())
    if not kinds:
        return np.full(count, SPLITS.index("test"), np.int8), []
    if len(kinds) > 1:
        raise DataError(f"{folder / 'split'}: has {', '.join(one.name for one in kinds)}; leave the one to be used")
    parts, read = np.full(count, -1, np.int8), list[Path]()
    for place, name in enumerate(SPLITS):
        file = _there(kinds[0], name)
        numbers = _numbers(file, np.int64)[:, 0]
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
            raise DataError(f"{file}: names node {numbers.max()}, and there are {count}; get all files again")
        parts[numbers] = place
        read.append(file)
    return parts, read


def _names(file: Path, count: int) -> tuple[str, ...]:
    """Return the classes' names from the second column; none where the table does not fit."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if len(row) >= 2 and row[0].strip().isdecimal()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({_short(error)}); leave it out, or get it again") from error
    found = {int(row[0]): row[1] for row in rows}
    return tuple(found[i] for i in range(count)) if all(i in found for i in range(count)) else ()
