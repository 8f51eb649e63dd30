"""Differences between given inputs and those of a dump: rows of the comparison, and likely preprocessing mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from engine import Array, DataError
from engine.measures import THRESHOLD
from toolkit.compare.nodes import Row, row_of
from toolkit.dump.entries import GRAPH_INPUT
from toolkit.dump.golden import Golden
from toolkit.graph.nodes import Node

CLOSE = 1e-3  # largest relative difference of an explained input
REVERSED = "its channels in reverse order (BGR for RGB)"
SCALED = "another mean and std"


def input_rows(dump: Golden, inputs: Sequence[Array]) -> list[Row]:
    """Return a row for each input that differs from the dump's; none if the dump has no inputs."""
    return [
        row_of(Node(-1, name, GRAPH_INPUT, (), (name,), ""), name, got.dtype.name, THRESHOLD["float32"], own, got, got)
        for name, own, got in _pairs(dump, inputs)
    ]


def input_notes(dump: Golden, inputs: Sequence[Array]) -> list[str]:
    """Return a note for each input that differs from the dump's, with the likely mistake."""
    notes = []
    for name, own, got in _pairs(dump, inputs):
        why = mistake(own, got)
        notes.append(f"input {name!r} differs from that of dump {dump.target}" + (f": {why}" if why else ""))
    return notes


def _pairs(dump: Golden, inputs: Sequence[Array]) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, the dump's and the given value of each differing input."""
    try:
        own = dump.given()
    except DataError:
        return
    for spec, mine, given in zip(dump.inputs, own, inputs, strict=True):
        if not np.array_equal(mine, given, equal_nan=mine.dtype.kind == "f"):
            yield spec.name, mine, given


def mistake(own: Array, given: Array) -> str:
    """Return the preprocessing mistake that explains the difference of images (N, C, H, W), or "" if none does."""
    if own.ndim != 4 or own.shape != given.shape or own.dtype.kind != "f":
        return ""
    if not given.size or given.min() == given.max():
        return ""
    turned = own[:, ::-1]
    if own.shape[1] == 3 and _near(turned, given):
        return REVERSED
    if _near(_fitted(own, given), given):
        return SCALED
    if own.shape[1] == 3 and _near(_fitted(turned, given), given):
        return f"{REVERSED}, and {SCALED}"
    return ""


def _near(wanted: Array, given: Array) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.linalg.norm(wanted - given) <= CLOSE * np.linalg.norm(given))


def _fitted(own: Array, given: Array) -> Array:
    """Return the values with each channel scaled and shifted by the least-squares fit to the given values."""
    x, y = (np.moveaxis(array, 1, 0).reshape(array.shape[1], -1).astype(np.float64) for array in (own, given))
    with np.errstate(invalid="ignore", over="ignore"):
        dx, dy = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
        spread = (dx * dx).sum(axis=1, keepdims=True)
        slope = (dx * dy).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1.0)
        fitted = y.mean(axis=1, keepdims=True) + slope * dx
    shape = (own.shape[1], own.shape[0], *own.shape[2:])
    return np.asarray(np.moveaxis(fitted.reshape(shape), 0, 1))
