"""Which operators of PyTorch a script names that the card has no kernel for."""

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
"""Modules of PyTorch, and how the operators behind their functions begin."""


def called(script: Script) -> Iterator[tuple[int, str]]:
    """Yield where a function of PyTorch is called, and its full name."""
    for node in script.nodes:
        if isinstance(node, cst.Call):
            name = script.dotted(node.func)
            if name and name.rpartition(".")[0] in _PREFIX:
                yield script.span(node)[0], name


def level_of(name: str, levels: Mapping[str, frozenset[str]]) -> str | None:
    """Return how the card serves a function where it has no kernel of its own: ``CPU fallback`` or ``missing``.

    Args:
        name: its full name. levels: an operator's name without ``aten::`` and overload -> how its overloads are served.
    """
    module, _, last = name.rpartition(".")
    found = levels.get(f"{_PREFIX.get(module, '')}{last}", frozenset())
    if not found or found & {"kernel", "composite"}:
        return None
    return "CPU fallback" if "CPU fallback" in found else "missing"


def by_name(levels: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the table of a device by the operators' names without overloads."""
    found: dict[str, set[str]] = {}
    for operator, level in levels.items():
        found.setdefault(operator.removeprefix("aten::").split(".")[0], set()).add(level)
    return {name: frozenset(kinds) for name, kinds in found.items()}
