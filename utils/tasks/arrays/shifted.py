"""Diagnostics for classes of any output that are off by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import TensorSpec
from utils.tasks.classification.task import ShiftedClasses


class ShiftedOutputs:
    """A :class:`ShiftedClasses` for each output that is a vector per sample and has one class per sample expected."""

    def __init__(self, outputs: Sequence[TensorSpec]) -> None:
        self._outputs = outputs
        self._of = {spec.name: ShiftedClasses() for spec in outputs}

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Add a batch: outputs of the model, and expected arrays by output."""
        arrays = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        for spec, array in zip(self._outputs, arrays, strict=True):
            labels = [np.asarray(target[spec.name]) for target in targets if spec.name in target]
            if spec.batch_axis == 0 and len(labels) == len(array) and all(label.size == 1 for label in labels):
                self._of[spec.name].see(
                    np.asarray(array), contexts, np.array([label.reshape(())[()] for label in labels])
                )

    def hints(self) -> Sequence[str]:
        """Return a line for each output whose classes look shifted."""
        return [f"output {name!r}: {hint}" for name, found in self._of.items() for hint in found.hints()]
