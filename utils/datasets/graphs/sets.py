"""Load graphs from a path of any supported form: a file of graphs, OGB's folder, molecules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.trees import below
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.graphs.files import Graph, read_graphs
from utils.datasets.graphs.molecules import SDF, TABLES, Molecule, read_molecules
from utils.datasets.graphs.ogb import is_ogb, labels, read_ogb, split

FEATURES, TARGETS = "features", "targets"
"""Keys of the data set's notes: the description of a node's features, and the names of the targets."""


class Wanted(NamedTuple):
    """Options for reading graphs.

    Attributes:
        properties: names of the molecules' data, or columns, that are the targets.
        column: the column of the SMILES.
        split: of OGB's folders: ``test`` (the default), ``SCHEME/test`` or ``all``.
        targets: whether targets are read.
    """

    properties: Sequence[str] = ()
    column: str | None = None
    split: str | None = None
    targets: bool = True


class _Found(NamedTuple):
    samples: Sequence[Graph | Molecule]
    targets: Array | None
    names: tuple[str, ...]
    features: str
    files: list[Path]
    rejected: list[Rejected]


def load_graphs(path: Path, wanted: Wanted) -> ListDataset:
    """Return graphs, or molecules that become graphs when they are prepared; targets are float64 [G, T].

    - ``.npz``: :func:`.read_graphs`. A folder in OGB's layout: :mod:`.ogb`.
    - ``.sdf``, ``.csv``, ``.tsv``, ``.smi``: :mod:`.molecules`. A folder of such files: all of them.

    With targets, graphs without any known target are rejected. Raises DataError if the path has no usable data, and
    ConfigError if the names of the targets are missing.
    """
    if wanted.split not in (None, "all") and not is_ogb(path):
        raise ConfigError(f"--split {wanted.split}: only a folder of OGB has parts, {path} does not; remove the flag")
    if path.is_dir() and not is_ogb(path):
        found = _joined(path, wanted)
    elif path.is_dir():
        found = _of_ogb(path, wanted)
    else:
        found = _of_file(path, wanted)
    notes = {FEATURES: found.features, TARGETS: found.names}
    if found.targets is None or not wanted.targets:
        names = [sample.name for sample in found.samples]
        return ListDataset(found.samples, None, names=names, files=found.files, rejected=found.rejected, notes=notes)
    unknown = [bool(np.isnan(row).all()) for row in found.targets]
    known = [place for place, missing in enumerate(unknown) if not missing]
    lost = [
        Rejected(Path(sample.name), "none of its targets is known; add one, or remove the graph")
        for sample, missing in zip(found.samples, unknown, strict=True)
        if missing
    ]
    if not known:
        raise DataError(f"{path}: no target of any graph is known; see docs/reference/gnn.md for the formats")
    kept = [found.samples[place] for place in known]
    return ListDataset(
        kept,
        list(found.targets[known]),
        names=[sample.name for sample in kept],
        files=found.files,
        rejected=[*found.rejected, *lost],
        notes=notes,
    )


def _of_file(path: Path, wanted: Wanted) -> _Found:
    if path.suffix.lower() == ".npz":
        held = read_graphs(path)
        return _Found(held.graphs, held.targets, held.target_names, held.features, [path], [])
    if path.suffix.lower() not in SDF + TABLES:
        what = "is not a supported graph format" if path.exists() else "does not exist"
        kinds = ", ".join(SDF + TABLES)
        raise DataError(f"data path {path} {what}; pass .npz, {kinds} or a folder (docs/reference/gnn.md)")
    if wanted.targets and not wanted.properties:
        raise ConfigError(f"{path}: the names of the targets are missing; set them with --property NAME")
    properties = wanted.properties if wanted.targets else ()
    found = read_molecules(path, properties, wanted.column)
    return _Found(found.found, found.targets, tuple(properties), "", [path], found.rejected)


def _of_ogb(path: Path, wanted: Wanted) -> _Found:
    graphs, targets = read_ogb(path), labels(path)
    if targets is not None and len(targets) != len(graphs):
        raise DataError(f"{path}: {len(targets)} labels for {len(graphs)} graphs; get the data set again")
    files, chosen = sorted(file for file in below(path, "*.csv*") if file.is_file()), wanted.split or "test"
    if chosen != "all":
        scheme, _, part = chosen.rpartition("/")
        places = split(path, part, scheme or None)
        if len(places) and not 0 <= places.min() <= places.max() < len(graphs):
            raise DataError(f"{path}: the split has graph {places.max()} of {len(graphs)}; get the data set again")
        graphs = [graphs[place] for place in places]
        targets = None if targets is None else targets[places]
    if not graphs:
        raise DataError(f"{path}: --split {chosen} has no graph; choose another, or all")
    return _Found(graphs, targets, (), "", files, [])


def _joined(path: Path, wanted: Wanted) -> _Found:
    """Read all files of molecules in a folder, sorted by name; files that cannot be read are rejected."""
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SDF + TABLES and file.is_file())
    if not files:
        kinds = ", ".join(SDF + TABLES)
        raise DataError(f"data path {path} has no {kinds} and is not an OGB folder; see docs/reference/gnn.md")
    parts, lost = list[_Found](), list[Rejected]()
    for file in files:
        try:
            parts.append(_of_file(file, wanted))
        except DataError as error:
            lost.append(Rejected(file, str(error).removeprefix(f"{file}: ")))
    if not parts:
        raise DataError(f"{lost[0].path}: {lost[0].reason}")
    molecules = [one for part in parts for one in part.samples]
    targets = [part.targets for part in parts if part.targets is not None]
    rejected = [*lost, *(one for part in parts for one in part.rejected)]
    return _Found(molecules, np.concatenate(targets) if targets else None, parts[0].names, "", files, rejected)
