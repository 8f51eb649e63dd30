"""The device's table: how the simulated card as a PyTorch device serves each ATen operator, as a file keeps it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

STORED = Path(__file__).resolve().parent / "aten.yaml"
"""The table of the torch that the zoo's tests run with."""

KERNEL, FALLBACK, COMPOSITE, MISSING, UNKNOWN = "kernel", "CPU fallback", "composite", "missing", "unknown"
LEVELS = {
    KERNEL: "the card's price model knows what it does",
    FALLBACK: "the CPU's kernel computes it, and its price is a rough one: its bytes, and not its arithmetic",
    COMPOSITE: "torch makes it of other operators",
    MISSING: "the device refuses it",
}
"""How an operator is served, and what that means; one that is in no table is ``unknown``."""

_KEYS = {KERNEL: "kernel", FALLBACK: "fallback", COMPOSITE: "composite", MISSING: "missing"}
_WRITTEN_BY = "python -m toolkit.training.operators"

HEAD = f"""\
# How the simulated card, as a PyTorch device, serves each operator of ATen. Written by `{_WRITTEN_BY}`
# from what torch_sdaa has registered with PyTorch's dispatcher: do not edit.
# tests/toolkit/training/operators/test_ops_training.py holds it against that.
#   kernel     {LEVELS[KERNEL]}
#   fallback   {LEVELS[FALLBACK]}
#   composite  {LEVELS[COMPOSITE]}
#   missing    {LEVELS[MISSING]}
"""


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """How each operator is served.

    Attributes:
        torch: the version it is of. levels: a word of :data:`LEVELS` by the operator's name (``aten::add.Tensor``).
        varying: operators whose result has a shape that follows from values.
    """

    torch: str
    levels: Mapping[str, str]
    varying: frozenset[str]

    def level(self, operator: str) -> str:
        """Return how an operator is served."""
        return self.levels.get(operator, UNKNOWN)


def stored_table(file: Path = STORED) -> DeviceTable:
    """Read the table that the zoo keeps.

    Raises:
        ConfigError: the file is not there, or is no table.
    """
    try:
        found = read_yaml(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror or error}); write it: {_WRITTEN_BY}") from error
    except YamlError as error:
        raise ConfigError(f"{file} is not a YAML file: {one_line(error)}") from error
    return as_table(found, file)


def as_table(found: Any, file: Path) -> DeviceTable:
    """Return a table as YAML or JSON has it.

    Raises:
        ConfigError: it is none.
    """
    names = ("torch", "varying", *_KEYS.values())
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
        raise ConfigError(f"{file} is no table of the device; write it: {_WRITTEN_BY}")
    levels = {operator: level for level, key in _KEYS.items() for operator in found[key].split()}
    return DeviceTable(found["torch"], levels, frozenset(found["varying"].split()))


def as_text(table: DeviceTable) -> dict[str, str]:
    """Return a table as JSON keeps it: the operators of each kind in one text."""
    words = {
        key: " ".join(sorted(n for n, one in table.levels.items() if one == level)) for level, key in _KEYS.items()
    }
    return {"torch": table.torch, **words, "varying": " ".join(sorted(table.varying))}


def yaml_text(table: DeviceTable) -> str:
    """Return the file of a table. Folded texts: a list of three thousand names would take a second to read."""
    parts = as_text(table)
    text = HEAD + f"schema_version: 1\ntorch: {parts.pop('torch')}\n"
    for key, words in parts.items():
        lines = textwrap.wrap(words, 116, break_long_words=False, break_on_hyphens=False)
        text += f"{key}: >-\n" + "".join(f"  {line}\n" for line in lines) if lines else f"{key}: ''\n"
    return text
