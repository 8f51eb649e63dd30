"""The process in which models run on target tvm and on ONNX Runtime: names as JSON lines on stdin, outcomes on stdout.

Names are those of the sweep's architectures, or paths of ONNX files below the repository. A crash ends this process
only (:mod:`sweep.runner`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sweep.judge import FLOAT32_LIMIT, error_of

from engine import EngineSpec, ModelError, TecoInferError, open_engine
from engine.signature import Array, TensorSpec
from parts.bench import ROOT

SAMPLES = 3
"""Samples of a call; the plan is compiled for as many."""

SIZES: Mapping[str, tuple[int, ...]] = {
    "nodes": (32,),
    "edges": (48,),
    "length": (64,),
    "seq": (64,),
    "tokens": (8,),
    "slots": (24,),
    "width": (96,),
    "frames": (200,),
}
"""Sizes of the symbolic dimensions of committed models."""


def main() -> int:
    """Run what is asked for until stdin ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as results:
        os.dup2(2, 1)
        for line in sys.stdin:
            name = json.loads(line)["row"]
            for message in ({"start": "tvm"}, {"outcome": _outcome(name)}, {"finished": name}):
                results.write(json.dumps(message) + "\n")
                results.flush()
    return 0


def _outcome(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"row": name, "combination": "tvm", "error": None, "compile_seconds": None, "reason": ""}
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="tvm-models-") as folder:
            warnings.simplefilter("ignore")
            return found | (_committed(ROOT / name) if name.endswith(".onnx") else _architecture(name, Path(folder)))
    except TecoInferError as error:
        return found | {"reason": str(error).rpartition(".onnx: ")[2]}


def _architecture(name: str, folder: Path) -> dict[str, Any]:
    """Export an architecture of the sweep with random weights, and compare it."""
    import torch
    from sweep.exporting import export
    from sweep.families import row_named
    from sweep.reference import module_of
    from sweep.row import dims

    torch.set_num_threads(1)
    row = row_named(name)
    arrays = row.inputs(np.random.default_rng(7), SAMPLES)
    by_name = dict(zip(row.names, arrays, strict=True))
    try:
        path = export(row, module_of(row), "dynamo", folder)
    except ModelError:
        path = export(row, module_of(row), "torchscript", folder)
    return _compared(path, dims(row, arrays), lambda inputs: [by_name[tensor.name] for tensor in inputs])


def _committed(path: Path) -> dict[str, Any]:
    with open_engine("onnx", EngineSpec(path)) as engine:
        symbols = {symbol for tensor in engine.inputs for symbol in tensor.symbols if symbol}
    rng = np.random.default_rng(7)

    def drawn(tensor: TensorSpec) -> Array:
        axes = zip(tensor.shape, tensor.symbols, strict=True)
        shape = [size if size is not None else SIZES.get(symbol or "", (SAMPLES,))[0] for size, symbol in axes]
        whole = rng.integers(0, 2, shape) if tensor.dtype.kind != "f" else rng.standard_normal(shape)
        return np.asarray(whole).astype(tensor.dtype)

    own = {symbol: SIZES[symbol] for symbol in symbols if symbol in SIZES}
    return _compared(path, own, lambda inputs: [drawn(tensor) for tensor in inputs])


def _compared(path: Path, dims: Mapping[str, tuple[int, ...]], draw: Any) -> dict[str, Any]:
    """Run a file on both engines; return the largest difference, and the seconds of lowering and compiling."""
    with open_engine("onnx", EngineSpec(path, batch_size=SAMPLES)) as engine:
        arrays = draw(engine.inputs)
        wanted = _list(engine(arrays))
    with open_engine("tvm", EngineSpec(path, batch_size=SAMPLES, dims=dims)) as engine:
        got = _list(engine(arrays))
        seconds = engine.compile_seconds  # type: ignore[attr-defined]
    error = min(max(map(error_of, got, wanted)), 1e9)  # infinite where shapes, or NaN, differ
    limit = FLOAT32_LIMIT if all(tensor.dtype != np.float16 for tensor in arrays) else None
    reason = f"differs by {error:.1e}" if limit is not None and error > limit else ""
    return {"error": error, "compile_seconds": seconds, "reason": reason}


def _list(found: Array | Sequence[Array]) -> list[Array]:
    return [found] if isinstance(found, np.ndarray) else list(found)


if __name__ == "__main__":
    sys.exit(main())
