"""Table of how the simulated card, as a PyTorch device, serves each ATen operator, and its YAML file."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

STORED = Path(__file__).resolve().parent / "aten.yaml"  # the table for the torch version of the zoo's tests
KERNEL, FALLBACK, COMPOSITE, MISSING, UNKNOWN = "kernel", "CPU fallback", "composite", "missing", "unknown"
LEVELS = {
    KERNEL: "the card's price model knows what it does",
    FALLBACK: "the CPU's kernel computes it; its price is approximate: bytes only, no arithmetic",
    COMPOSITE: "torch decomposes it into other operators",
    MISSING: "the device does not support it",
}
"""How an operator is served, with its meaning; operators that are not in the table are ``unknown``."""

_KEYS = {KERNEL: "kernel", FALLBACK: "fallback", COMPOSITE: "composite", MISSING: "missing"}
_WRITTEN_BY = "python -m toolkit.training.operators"

HEAD = f"""\
# How the simulated card, as a PyTorch device, serves each operator of ATen. Written by `{_WRITTEN_BY}`
# from what torch_sdaa has registered with PyTorch's dispatcher: do not edit.
# tests/toolkit/training/operators/test_ops_training.py compares both.
#   kernel     {LEVELS[KERNEL]}
#   fallback   {LEVELS[FALLBACK]}
#   composite  {LEVELS[COMPOSITE]}
#   missing    {LEVELS[MISSING]}
"""


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """How each operator is served."""

    torch: str  # its version
    levels: Mapping[str, str]  # a key of :data:`LEVELS` by operator name (``aten::add.Tensor``)
    varying: frozenset[str]  # operators whose result shape depends on values

    def level(self, operator: str) -> str:
        """Return how an operator is served."""
        return self.levels.get(operator, UNKNOWN)


def stored_table(file: Path = STORED) -> DeviceTable:
    """Read the zoo's table; raise ConfigError if the file is missing or invalid."""
    try:
        found = read_yaml(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror or error}); write it: {_WRITTEN_BY}") from error
    except YamlError as error:
        raise ConfigError(f"{file} is not a YAML file: {one_line(error)}") from error
    return as_table(found, file)


def as_table(found: Any, file: Path) -> DeviceTable:
    """Return a table read from YAML or JSON; raise ConfigError if the content is not a table."""
    names = ("torch", "varying", *_KEYS.values())
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in names):
        raise ConfigError(f"{file} is not a table of the device; write it: {_WRITTEN_BY}")
    levels = {operator: level for level, key in _KEYS.items() for operator in found[key].split()}
    return DeviceTable(found["torch"], levels, frozenset(found["varying"].split()))


def as_text(table: DeviceTable) -> dict[str, str]:
    """Return a table as JSON: the operators of each level in one string."""
    words = {
        key: " ".join(sorted(n for n, one in table.levels.items() if one == level)) for level, key in _KEYS.items()
    }
    return {"torch": table.torch, **words, "varying": " ".join(sorted(table.varying))}


def yaml_text(table: DeviceTable) -> str:
    """Return the YAML file of a table. Folded strings, because a list of 3000 names takes a second to read."""
    parts = as_text(table)
    text = HEAD + f"schema_version: 1\ntorch: {parts.pop('torch')}\n"
    for key, words in parts.items():
        lines = textwrap.wrap(words, 116, break_long_words=False, break_on_hyphens=False)
        text += f"{key}: >-\n" + "".join(f"  {line}\n" for line in lines) if lines else f"{key}: ''\n"
    return text
