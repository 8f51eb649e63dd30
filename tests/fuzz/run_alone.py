"""ONNX Runtime alone on a model file, as reference for the zoo's targets: python run_alone.py MODEL OUT.npz."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

ROWS = 2
"""Size of every dynamic dimension."""

REFUSED, UNABLE, FAILED = 10, 11, 12
"""Exit codes: the file is rejected; an operator is not implemented; the computation fails."""

MOST = 1 << 24
"""Maximum number of elements of an input."""

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bool": np.bool_,
    "string": np.object_,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class TooLargeError(ValueError):
    """The shape of an input is too large."""


def made(shapes: Sequence[Sequence[int | None]], dtypes: Sequence[Any]) -> list[Any]:
    """Return the same arrays for the same inputs in every process: floats around 0, integers 0 and 1.

    Raises:
        TooLargeError: an input has more elements than the limit.
    """
    random = np.random.default_rng(7)
    arrays = []
    for shape, dtype in zip(shapes, map(np.dtype, dtypes), strict=True):
        sizes = [ROWS if d is None else d for d in shape]
        count = 1
        for size in sizes:
            count *= size
        if count > MOST:
            raise TooLargeError(f"an input of shape {sizes} is too large to be made")
        if dtype.kind == "f":
            arrays.append(random.standard_normal(sizes).astype(dtype))
        elif dtype.kind == "O":
            arrays.append(np.array(random.choice(["a", "B c", ""], sizes), dtype=object).reshape(sizes))
        else:
            arrays.append(random.integers(0, 2, sizes).astype(dtype))
    return arrays


def main(path: str, out: str, optimised: str = "yes") -> int:
    """Run a model with ONNX Runtime only."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if optimised == "no":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - its exceptions share no base
        sys.stderr.write(f"{error}\n")
        unable = "NOT_IMPLEMENTED" in str(error) or isinstance(error, TypeError)  # a name with invalid UTF-8
        return UNABLE if unable else REFUSED
    inputs = session.get_inputs()
    unnamed = [[d if isinstance(d, int) else None for d in tensor.shape] for tensor in inputs]
    kinds = [tensor.type.removeprefix("tensor(").removesuffix(")") for tensor in inputs]
    try:
        arrays = made(unnamed, [DTYPES[kind] for kind in kinds])
        outputs = session.run(None, {tensor.name: a for tensor, a in zip(inputs, arrays, strict=True)})
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(f"{error}\n")
        return UNABLE if "NOT_IMPLEMENTED" in str(error) else FAILED
    save(out, outputs)
    return 0


def save(out: str, outputs: Sequence[Any]) -> None:
    """Write outputs in their order; texts as fixed-width characters, as pickles are not read."""
    arrays = {str(i): np.asarray(array) for i, array in enumerate(outputs)}
    np.savez(out, **{i: array.astype(np.str_) if array.dtype.kind == "O" else array for i, array in arrays.items()})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
