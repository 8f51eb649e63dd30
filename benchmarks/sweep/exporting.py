"""A row's ONNX file by either of torch's exporters."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import EngineSpec, ModelError, open_engine
from sweep.reference import outputs_of, quiet
from sweep.row import Row
from utils.export.agree import TOLERANCES, relative_error
from utils.export.graphs import first_line
from utils.export.torch_export import export_onnx

OPSET = 18


def export(row: Row, module: torch.nn.Module, exporter: str, folder: Path) -> Path:
    """Write a row's file and return its path.

    ``dynamo`` is :func:`export_onnx`, whose file is simplified and checked against the module; ``torchscript`` is the
    unchanged file of ``torch.onnx.export``, as users have it, checked in the same way.

    Raises:
        ModelError: it cannot be exported.
    """
    arrays = row.inputs(np.random.default_rng(2), 2)
    axes = {name: dict(named) for name, named in row.dynamic.items()}
    names = {"input_names": list(row.names), "output_names": list(row.outputs)}
    tensors = tuple(map(torch.from_numpy, arrays))
    with _silent():
        if exporter == "dynamo":
            export_onnx(module, tensors, folder / "model", dynamic=axes, opset=OPSET, float16=False, **names)
            return folder / "model_dyn.onnx"
        return _traced(row, module, tensors, folder / "traced.onnx", {**names, "dynamic_axes": axes})


def _traced(row: Row, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, options: Any) -> Path:
    """Trace a module into a file, and compare that with the module on other sizes than it was traced on."""
    try:
        torch.onnx.export(module, inputs, str(path), dynamo=False, opset_version=OPSET, **options)
    except Exception as error:  # the tracer raises whatever the module, or any layer of torch, raises
        raise ModelError(f"torch.onnx cannot trace {row.name}: {first_line(error)}") from error
    arrays = row.inputs(np.random.default_rng(4), 3)
    fed = dict(zip(row.names, arrays, strict=True))
    with open_engine("onnx", EngineSpec(ckpt=path)) as engine:
        found = engine([fed[tensor.name] for tensor in engine.inputs])
    error = relative_error(found if isinstance(found, list) else [found], outputs_of(module, arrays))
    if error > TOLERANCES["float32"]:
        raise ModelError(
            f"{path.name}: largest relative error {error:.1e} is above the tolerance: torch traced it wrongly"
        )
    return path


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress output (also from C++), log lines and warnings of exporters."""
    level, kept = logging.root.manager.disable, [os.dup(1), os.dup(2)]
    logging.disable(logging.WARNING)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the tracer does not know the operator
    try:
        with quiet(), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        sys.stdout.flush()
        for to, stream in enumerate(kept, 1):
            os.dup2(stream, to)
            os.close(stream)
        torch.backends.mha.set_fastpath_enabled(fast)
        logging.disable(level)
