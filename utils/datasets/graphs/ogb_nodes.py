"""OGB's folder of one graph whose nodes have classes (Hu et al., 2020), as it is downloaded and unpacked.

``raw/`` holds the graph and ``node-label.csv.gz``, ``split/NAME/`` which nodes are in ``train``, ``valid`` and
``test``; ``mapping/labelidx2*.csv.gz`` the classes' names, where it is there (:mod:`utils.datasets.graphs.ogb`).
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
"""Words in names of networks whose edges are written in one direction and hold for both, as OGB's loader says."""


def read_ogb_nodes(folder: Path) -> tuple[Labelled, Sequence[Path]]:
    """Return the graph of a folder, and the files that were read.

    Raises:
        DataError: a file is missing or damaged, there are several graphs, or nodes have several labels or numbers that
            are no classes.
    """
    graphs, given = read_ogb(folder), labels(folder, "node")
    if len(graphs) != 1:
        raise DataError(
            f"{folder}: {len(graphs)} graphs; nodes are classified in one, whole graphs by graph_prediction"
        )
    (graph,) = graphs
    if given is None:
        raise DataError(f"{folder}: there is no node-label.csv.gz; get the data set again")
    if given.shape != (len(graph.nodes), 1):
        raise DataError(
            f"{folder}: node-label has {given.shape[0]} rows of {given.shape[1]} labels for {len(graph.nodes)} nodes; "
            "this task takes one class per node"
        )
    known = np.where(np.isnan(given[:, 0]), -1, given[:, 0])
    if (known != np.floor(known)).any() or (known < -1).any():
        raise DataError(f"{folder}: node-label holds what is no class number; classes are 0, 1, 2, ...")
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
            raise DataError(f"{folder}: split {name} names node {numbers.max()}, and there are {count}; get it again")
        parts[numbers] = place
    return parts


def _names(folder: Path, count: int) -> tuple[str, ...]:
    """Return the classes' names from the second column of the mapping; none where there is none that fits."""
    file = next(iter(sorted(folder.glob("mapping/labelidx2*.csv*"))), None)
    if file is None:
        return ()
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if len(row) >= 2 and row[0].strip().isdecimal()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({reason_of(error)}); leave it out, or get it again") from error
    found = {int(row[0]): row[1] for row in rows}
    return tuple(found[i] for i in range(count)) if all(i in found for i in range(count)) else ()
