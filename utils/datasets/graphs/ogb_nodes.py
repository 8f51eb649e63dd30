"""OGB's folder of one graph with node classes (Hu et al., 2020), as downloaded and unpacked.

``raw/`` has the graph and ``node-label.csv.gz``, ``split/NAME/`` the nodes of ``train``, ``valid`` and ``test``, and
``mapping/labelidx2*.csv.gz`` the optional names of the classes (:mod:`utils.datasets.graphs.ogb`).
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import reason_of
from tecoinfer_modelzoo.trees import below
from utils.datasets.graphs.labelled_graph import SPLITS, Labelled
from utils.datasets.graphs.ogb import labels, read_ogb, split

ONCE = ("products",)
"""Words in names of networks whose edges are stored in one direction and valid for both, as in OGB's loader."""


def read_ogb_nodes(folder: Path) -> tuple[Labelled, Sequence[Path]]:
    """Return the graph of a folder, and the files that were read.

    Raises:
        DataError: a file is missing or damaged, there are several graphs, or nodes have several labels or invalid ones.
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
    classes = _names(folder, int(known.max(initial=-1)) + 1)
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


def _names(folder: Path, count: int) -> tuple[str, ...]:
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
