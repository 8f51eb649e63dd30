"""PyTorch operators in a script that the card has no kernel for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from transplant.script import Script

_PREFIX = {
    "torch": "",
    "torch.Tensor": "",
    "torch.nn.functional": "",
    "torch.linalg": "linalg_",
    "torch.fft": "fft_",
    "torch.special": "special_",
    "torch.sparse": "_sparse_",
}
"""Modules of PyTorch, and the name prefix of their operators."""


def called(script: Script) -> Iterator[tuple[int, str]]:
    """Yield position and full name of each call of a PyTorch function."""
    for node in script.nodes:
        if isinstance(node, cst.Call):
            name = script.dotted(node.func)
            if name and name.rpartition(".")[0] in _PREFIX:
                yield script.span(node)[0], name


def level_of(name: str, levels: Mapping[str, frozenset[str]]) -> str | None:
    """Return how the card serves a function without a kernel: ``CPU fallback`` or ``missing``; else ``None``.

    Args:
        name: its full name. levels: operator name without ``aten::`` and overload -> levels of its overloads.
    """
    module, _, last = name.rpartition(".")
    found = levels.get(f"{_PREFIX.get(module, '')}{last}", frozenset())
    if not found or found & {"kernel", "composite"}:
        return None
    return "CPU fallback" if "CPU fallback" in found else "missing"


def by_name(levels: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return a device's table by operator names without overloads."""
    found: dict[str, set[str]] = {}
    for operator, level in levels.items():
        found.setdefault(operator.removeprefix("aten::").split(".")[0], set()).add(level)
    return {name: frozenset(kinds) for name, kinds in found.items()}
