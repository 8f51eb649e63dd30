"""The table of families: each a file of rows."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from sweep.row import Row

FAMILIES = {
    "classification": "classification",
    "timm": "timm_models",
    "segmentation": "segmentation",
    "detection": "detection",
    "image networks": "named.image_networks",
    "text": "text",
    "decoders": "decoders",
    "recurrent": "recurrent",
    "speech": "speech",
    "graphs": "graphs",
    "recommendation": "recommendation",
    "diffusion": "diffusion",
    "others": "others",
}
"""Family -> module of this package with its ``ROWS``."""


def rows_of(family: str) -> tuple[Row, ...]:
    """Return the rows of a family."""
    rows: tuple[Row, ...] = importlib.import_module(f"sweep.{FAMILIES[family]}").ROWS
    return rows


def all_rows() -> Mapping[str, tuple[str, Row]]:
    """Return name -> family and row, in order.

    Raises:
        ValueError: two rows have one name.
    """
    found: dict[str, tuple[str, Row]] = {}
    for family in FAMILIES:
        for row in rows_of(family):
            if row.name in found:
                raise ValueError(f"two rows are called {row.name!r}")
            found[row.name] = (family, row)
    return found


def row_named(name: str) -> Row:
    """Return one row."""
    return all_rows()[name][1]
