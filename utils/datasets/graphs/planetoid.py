"""Planetoid's files of a citation network (Yang et al., 2016): Cora, CiteSeer and PubMed as ``ind.NAME.*``.

``x`` and ``y`` are the training nodes, ``allx`` and ``ally`` all except test nodes, ``tx`` and ``ty`` the test nodes in
the order of ``test.index``, and ``graph`` the neighbours of every node. The 500 nodes after the training nodes are the
validation set, as usual. Test nodes that are missing in the list (15 in CiteSeer) have no features and no class.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import read_regular
from utils.datasets.graphs.files import Graph, Labelled
from utils.datasets.graphs.pickled_arrays import Sparse, read_pickled

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALIDATION = 500
"""Number of validation nodes."""
MOST = 4_000_000_000
"""Maximum bytes of the features of all nodes."""


def read_planetoid(path: Path) -> tuple[Labelled, Sequence[Path]]:
    """Return the graph of a folder with one network's files, or of one of its files, and the files.

    Raises DataError if a file is missing or damaged, there are several networks, or the parts do not match.
    """
    files = _files(path)
    named = {part: read_pickled(file) for part, file in files.items() if part != "test.index"}
    places = _index(files["test.index"])
    features = {part: _matrix(named[part], files[part]) for part in ("allx", "tx")}
    labels = {part: _classes(named[part], files[part]) for part in ("y", "ally", "ty")}
    neighbours = named["graph"]
    if not isinstance(neighbours, dict):
        raise DataError(f"{files['graph']}: has no neighbours by node; get it again")
    known, tested = features["allx"], features["tx"]
    misfit = len(known) != len(labels["ally"]) or len(tested) != len(labels["ty"]) or len(places) != len(tested)
    if misfit or known.shape[1] != tested.shape[1] or (places < len(known)).any() or len(set(places)) < len(places):
        raise DataError(f"{files['allx']}: does not match {files['tx'].name} and {files['test.index'].name}; get all")
    count = max(int(places.max()) + 1, len(neighbours), 1 + max(neighbours, default=0))
    x, found = np.zeros((count, known.shape[1]), np.float32), np.full(count, -1, np.int64)
    x[: len(known)], x[places] = known, tested
    found[: len(known)], found[places] = labels["ally"], labels["ty"]
    parts = np.full(count, -1, np.int8)
    trained = len(labels["y"])
    parts[:trained], parts[trained : min(trained + VALIDATION, len(known))], parts[places] = 0, 1, 2
    edges = [(source, target) for target, sources in neighbours.items() for source in sources]
    graph = Graph(x, np.array(edges, np.int64).reshape(-1, 2).T, name=files["graph"].name.split(".")[1])
    return Labelled(graph, found, parts, undirected=True), list(files.values())


def _files(path: Path) -> dict[str, Path]:
    folder = path if path.is_dir() else path.parent
    names = sorted(file.name.split(".")[1] for file in folder.glob("ind.*.graph"))
    if path.is_file():
        names = [name for name in names if path.name.startswith(f"ind.{name}.")]
    if len(names) != 1:
        several = f"contains {', '.join(names)}" if names else "is not a file of Planetoid's"
        raise DataError(f"{path}: {several}; pass the path of one, such as {folder / 'ind.cora.graph'}")
    files = {part: folder / f"ind.{names[0]}.{part}" for part in PARTS}
    missing = next((file for file in files.values() if not file.is_file()), None)
    if missing is not None:
        raise DataError(f"{missing}: is missing; a network has the files {', '.join(PARTS)}")
    return files


def _index(file: Path) -> Array:
    try:
        found = np.array([int(line) for line in read_regular(file).decode("ascii").split()], np.int64)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read as one integer per line; get it again") from error
    if not len(found) or (found < 0).any():
        raise DataError(f"{file}: has no test node, or a negative one; get it again")
    return found


def _matrix(value: Any, file: Path) -> Array:
    """Return N x F float32."""
    if isinstance(value, Sparse):
        try:
            return value.dense(MOST)
        except DataError as error:
            raise DataError(f"{file}: {error}") from error
    if not isinstance(value, np.ndarray) or value.ndim != 2:
        raise DataError(f"{file}: has no matrix; get it again")
    return value.astype(np.float32)


def _classes(value: Any, file: Path) -> Array:
    """Return the class of each row of ones and zeros, -1 for a row of zeros."""
    if not isinstance(value, np.ndarray) or value.ndim != 2:
        raise DataError(f"{file}: has no rows of ones and zeros; get it again")
    return np.where(value.any(axis=1), value.argmax(axis=1), -1).astype(np.int64)
