"""Accuracy of node classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from utils.metrics.f1 import Accuracy


class NodeAccuracy(Accuracy):
    """Share of nodes, 0 to 1, whose class has the highest score; macro F1 and Matthews' correlation are secondary."""

    def __init__(self, labels: Sequence[str] | None = None) -> None:
        super().__init__(1, labels)
        self.name = "node_accuracy"

    def secondary(self) -> Mapping[str, float]:
        """Return ``macro_f1`` and ``matthews``."""
        return {name: value for name, value in super().secondary().items() if name != "top1"}
