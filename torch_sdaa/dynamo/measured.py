"""Sizes of a graph's own tensors: they follow from the sizes of its inputs, and need not be computed from tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from torch_sdaa.dynamo.plans import Numbers

_aten = torch.ops.aten
_ASKS = (_aten.sym_size.int, _aten.sym_numel.default)


class Size:
    """A size in the current call, computed without tensors."""

    def __init__(self, traced: torch.SymInt, numbers: Numbers) -> None:
        self._traced, self._numbers = traced, numbers
        self.__name__ = self.__qualname__ = "size"
        self.__module__ = __name__

    def __call__(self) -> int:
        """Return the size."""
        return self._numbers.sizes.number(self._traced)


def asked_first(gm: fx.GraphModule, numbers: Numbers) -> None:
    """Compute sizes of tensors made in a graph in advance, so that they do not split a partition."""
    first = next((node for node in gm.graph.nodes if node.op != "placeholder"), None)
    for node in [each for each in gm.graph.nodes if each.target in _ASKS and each.args[0].op != "placeholder"]:
        traced: Any = node.meta.get("val")
        if first is None or not isinstance(traced, torch.SymInt) or not _is_known(traced, numbers):
            continue
        with gm.graph.inserting_before(first):
            known = gm.graph.call_function(Size(traced, numbers))
        known.meta.update(node.meta)
        node.replace_all_uses_with(known)
        if first is node:
            first = known
        gm.graph.erase_node(node)


def _is_known(traced: torch.SymInt, numbers: Numbers) -> bool:
    try:
        numbers.sizes.number(traced)
    except LookupError:  # it depends on data
        return False
    return True
