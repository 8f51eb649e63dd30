"""ONNX files of a model that is built node by node instead of exported from a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array
from utils.export.forms import FORMS, chosen_forms
from utils.export.onnx_files import Expected, ExportResult, ModelNotes, variants_of, write_onnx_files

if TYPE_CHECKING:
    from onnx import ModelProto


def write_constructed(
    build: Callable[[bool], ModelProto],
    cases: Sequence[Sequence[Array]],
    stem: Path,
    notes: ModelNotes,
    forms: Sequence[str] = FORMS,
) -> list[ExportResult]:
    """Write ``<stem>.onnx``, ``<stem>_dyn.onnx`` and ``<stem>_float16_dyn.onnx``.

    Each file is run on the accuracy baseline and compared with ONNX's reference evaluator on the float32 model.

    Args:
        build: returns the model, static for ``False``, with dynamic axes for ``True``.
        cases: inputs to compare on, one array (floats: float32) per input; the first has the static model's shapes.

    Raises ExportError: outputs of a file differ (the others are written); ModelError: the folder cannot be written.
    """
    from onnx.reference import ReferenceEvaluator

    free = build(True)
    reference = ReferenceEvaluator(free)
    names = [value.name for value in free.graph.input]
    tried = []
    for arrays in cases:
        wanted: Any = reference.run(None, dict(zip(names, arrays, strict=True)))
        tried.append(Expected(list(arrays), [np.asarray(array) for array in wanted]))
    return write_onnx_files(stem, variants_of(build(False), free, tried, chosen_forms(forms)), notes)
