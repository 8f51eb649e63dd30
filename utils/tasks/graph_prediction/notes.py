"""Metadata of a graph network, and the layout of its inputs.

The metadata ``graph`` is a JSON object; all keys are optional:

- ``messages``: ``symmetric``, ``mean`` or ``sum`` (:mod:`utils.preprocess.graphs.messages`); ``loops``: whether nodes
  have loops; ``directed``: whether edges hold in the listed direction only; ``edge_values``: whether the first number
  of an edge is its weight.
- ``kind``: ``regression``, ``binary`` (a logit per target) or ``classes`` (a logit per class); ``targets``: their
  names; ``unit``: of regression values.
- ``atoms``: features of an atom (:class:`utils.datasets.graphs.molecules.AtomFeatures`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine import ModelError
from utils.datasets.graphs.molecules import AtomFeatures
from utils.preprocess.graphs.messages import KINDS as MESSAGES
from utils.preprocess.graphs.sparse import Limits
from utils.tasks import Model

NOTE = "graph"

KINDS = ("regression", "binary", "classes")

DENSE = ("x", "adjacency", "mask")
PACKED = ("x", "edges", "weights", "member", "share", "sizes")
"""Names of the inputs of both forms."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphNotes:
    """Metadata of an export."""

    messages: str = "symmetric"  # this and the next three: conversion of edges to messages
    loops: bool = True
    directed: bool = False
    edge_values: bool = False
    kind: str | None = None  # one of KINDS; None: not stored
    targets: tuple[str, ...] = ()  # names of the outputs
    unit: str = ""  # of a regression
    atoms: AtomFeatures | None = None  # features of atoms, for models of molecules; None: unknown

    @classmethod
    def of(cls, model: Model) -> GraphNotes:
        """Read the metadata. Raises ModelError if they are invalid."""
        text = model.metadata.get(NOTE)
        return cls() if text is None else _read(text, model.ckpt)


@lru_cache(maxsize=8)
def _read(text: str, ckpt: Path) -> GraphNotes:
    from utils.stored import ModelMetadata

    found = ModelMetadata({NOTE: text}, ckpt).json(NOTE)
    if not isinstance(found, dict):
        raise ModelError(f"{ckpt}: metadata {NOTE!r} is not a JSON object; export the model again")
    known: dict[str, Any] = {
        "messages": lambda value: value in MESSAGES,
        "loops": lambda value: isinstance(value, bool),
        "directed": lambda value: isinstance(value, bool),
        "edge_values": lambda value: isinstance(value, bool),
        "kind": lambda value: value in KINDS,
        "targets": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        "unit": lambda value: isinstance(value, str),
        "atoms": lambda value: isinstance(value, dict),
    }
    for key, value in found.items():
        if key not in known or not known[key](value):
            raise ModelError(f"{ckpt}: metadata {NOTE!r}: {key} {value!r} is unknown; export the model again")
    values = dict(found)
    if "targets" in values:
        values["targets"] = tuple(values["targets"])
    if "atoms" in values:
        values["atoms"] = AtomFeatures.of(values["atoms"], ckpt)
    return GraphNotes(**values)


def places_of(model: Model) -> dict[str, int]:
    """Return the index of each input by name: all of :data:`DENSE`, or all of :data:`PACKED`.
    Raises ModelError if the inputs have other names."""
    names = [spec.name for spec in model.inputs]
    if sorted(names) not in (sorted(DENSE), sorted(PACKED)):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(names)}; expected {', '.join(DENSE)} (dense) or "
            f"{', '.join(PACKED)} (packed): export it so, or replace prepare in the task"
        )
    return {name: place for place, name in enumerate(names)}


def is_packed(model: Model) -> bool:
    """Return whether a model takes several graphs as one block-diagonal graph, by its inputs."""
    return "edges" in places_of(model)


def dense_sizes(model: Model) -> tuple[int, ...]:
    """Return the planned numbers of nodes of the adjacency matrix, rising; empty: any."""
    return model.sizes(places_of(model)["adjacency"], 1)


def packed_limits(model: Model) -> Limits:
    """Return the planned sizes of a packed batch."""
    places = places_of(model)
    wanted = (("x", 0), ("edges", 1), ("sizes", 0))
    return Limits(*(model.sizes(places[name], axis) for name, axis in wanted))
