"""Results of a test case on its engines: error compared with the baseline, and whether it is tolerated."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, EngineSpec, engine_class, open_engine

if TYPE_CHECKING:
    from typing import TypeAlias

    Run: TypeAlias = "tuple[str, str, float]"

TARGETS = ("onnx", "sdaa")  # default targets of a case, run in float32 and in the target's default precision

TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2, "int8": 1e-1}
"""Largest tolerated error by precision, as a share of the largest value of an output."""

MODEL, DATA = "model.onnx", "data.npz"  # files of a case next to its test


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a case on one engine."""

    target: str  # an entry of the case's ``runs``
    dtype: str  # an entry of the case's ``runs``
    tolerance: float  # an entry of the case's ``runs``
    error: float | None  # largest difference as a share of the baseline's largest value; ``None`` if the run failed
    reason: str = ""  # why the run failed, or that no engine can pass in this precision, or ""

    @property
    def passed(self) -> bool:
        """Whether it ran with a tolerated error; NaN is not tolerated."""
        return self.error is not None and self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class NodeTest:
    """A test case on disk."""

    folder: Path  # folder of the files
    node: str  # name
    op: str  # operator
    test: Path  # the pytest file
    inputs: Mapping[str, Array]  # inputs of the node's model by name
    outputs: Mapping[str, Array]  # the baseline's outputs by name
    runs: Sequence[Run]  # target, precision and tolerance of each run


def runs_of(targets: Iterable[str], arrays: Iterable[Array] = ()) -> list[Run]:
    """Return target, precision and tolerance of each run; float16 values in ``arrays`` raise all tolerances.

    Raise TargetError if a target is unknown or cannot be loaded.
    """
    least = TOLERANCES["float16"] if any(array.dtype == np.float16 for array in arrays) else 0.0
    runs = []
    for target in dict.fromkeys(targets):
        engine = engine_class(target)
        for dtype in dict.fromkeys(("float32", engine.default_dtype)):
            if dtype in engine.dtypes:
                runs.append((target, dtype, max(TOLERANCES[dtype], least)))
    return runs


def run_case(case: NodeTest) -> list[Outcome]:
    """Run a case on its engines as its test does; a failed run is an outcome too."""
    return [_outcome(case, target, dtype, tolerance) for target, dtype, tolerance in case.runs]


def _outcome(case: NodeTest, target: str, dtype: str, tolerance: float) -> Outcome:
    from engine import TecoInferError

    spec = EngineSpec(case.folder / MODEL, dtype=dtype, divided=False)
    try:
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore")  # as in the test: casts of inputs, and the card's cost model
            with open_engine(target, spec) as engine:
                found = engine(list(case.inputs.values()))
    except TecoInferError as error:
        return Outcome(target, dtype, tolerance, None, str(error))
    results = [found] if isinstance(found, np.ndarray) else found
    outcome = Outcome(target, dtype, tolerance, worst_error(results, list(case.outputs.values())))
    if outcome.passed or dtype != "float16":
        return outcome
    return replace(outcome, reason=_precision_alone(case, tolerance))


def _precision_alone(case: NodeTest, tolerance: float) -> str:
    """Return a note if the baseline fails too with inputs, weights and outputs rounded to float16, else ""."""
    import onnx
    from onnx import numpy_helper

    from engine.backends import HostSession

    def rounded(array: Array) -> Array:
        return array.astype(np.float16).astype(array.dtype) if array.dtype.kind == "f" else array

    model = onnx.load(case.folder / MODEL)
    with np.errstate(over="ignore"):
        for weight in model.graph.initializer:
            weight.CopyFrom(numpy_helper.from_array(rounded(numpy_helper.to_array(weight)), weight.name))
        found = HostSession(model, threads=1).run([rounded(array) for array in case.inputs.values()])
        error = worst_error([rounded(array) for array in found], list(case.outputs.values()))
    if error <= tolerance:
        return ""
    return f"due to float16: the baseline rounded to float16 fails too ({error:.2g})"


def worst_error(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return an output's largest difference as a share of its largest value; infinite for other shapes or integers."""
    return max((_error(one, other) for one, other in zip(found, expected, strict=True)), default=0.0)


def _error(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind != "f":  # indices and classes must be equal
        return 0.0 if np.array_equal(found, expected) else float("inf")
    one, other = found.astype(np.float64), expected.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(one - other))
    finite = np.abs(other[np.isfinite(other)])
    worst = float(off.max(initial=0.0))
    return float("inf") if np.isnan(worst) else worst / (float(finite.max(initial=0.0)) or 1.0)
