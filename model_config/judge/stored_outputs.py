"""Outputs in the scorecard: a check compares the outputs of the target for some samples with them.

A fault in one layer can change every output by a percent and no prediction. The metric then passes, as the
specification has it, but the model is not the one that the scorecard describes. ``teco check --update`` stores some
outputs of the baseline in ``numerics.yaml``, if those of the target agree with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine import Array
from model_config.cases.case import Case
from model_config.judge import agreement
from model_config.judge.accuracy import RunStep, baseline_of

SAMPLES, VALUES = 4, 64
"""Samples that are stored, and values of each of their outputs."""

TOLERANCES = {"float32": 2e-4, "float16": 1.5e-3, "bfloat16": 1.2e-2}
"""Largest deviation by the target's precision; other precisions are not compared. Outputs of the repository's models on
the simulated card in float16 deviate by 2e-4 to 7e-4 from float32; a layer scaled by 1.02 moves most of them by 2e-3 to
2e-2. bfloat16 has three bits less than float16."""

FORMULA = "|a - b| / |b|"
"""Deviation of the values ``a`` from the stored ``b`` of an output, with Euclidean norms over all samples."""


def of_target(case: Case, run: RunStep) -> tuple[list[Array], str]:
    """Return outputs of a case's target for some samples, and its precision; without a step that writes some, neither.

    Args:
        run: runs a step of the case.
    """
    step = agreement.step_of(case)
    if step is None:
        return [], ""
    result = run(step, agreement.OUTPUTS, agreement.RAW)
    return some_outputs(result.result if result.passed else None), str(step.params["dtype"])


def of_baseline(case: Case, folder: Path, run: RunStep) -> tuple[list[Array], str]:
    """Return outputs of a case's baseline to store, or none with a note if those of the target deviate from them.

    Without a note, the task writes no outputs, or the target has another precision than those of :data:`TOLERANCES`.

    Args:
        folder: the copy of the model's folder with the exported files. run: runs a step of the case.
    """
    step = agreement.step_of(case)
    if step is None or "ckpt" not in step.params or step.params["dtype"] not in TOLERANCES:
        return [], ""
    ours, precision = of_target(case, run)
    if not ours:
        return [], ""
    words = agreement.words(step, "float32", baseline_of(case, step, folder))
    result = run(step, agreement.BASELINE_OUTPUTS, words)
    stored = some_outputs(result.result if result.passed else None)
    error = deviation(ours, stored)
    if error <= TOLERANCES[precision]:
        return stored, ""
    return [], f"no outputs are stored: those of the target deviate by {error:.1e} ({FORMULA}) from the baseline's"


def some_outputs(result: Path | None) -> list[Array]:
    """Return values of every output of the first samples of a step, an array per output, float64.

    Values are spaced evenly over those that the step wrote. Empty if the step wrote none, or if its samples do not
    have the same number of outputs.
    """
    found = list(agreement.raw_outputs(result).values())[:SAMPLES]
    samples = [one[: len(one) // 2] for one in found]  # without the shapes
    if not samples or len({len(one) for one in samples}) > 1:
        return []
    return [np.concatenate([_thinned(one) for one in outputs]) for outputs in zip(*samples, strict=True)]


def _thinned(values: Array) -> Array:
    flat = np.ravel(values)
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), min(VALUES, flat.size)).astype(np.intp))
    return flat[places]


def deviation(ours: Sequence[Array], stored: Sequence[Array]) -> float:
    """Return the largest deviation of an output (:data:`FORMULA`); infinite for other numbers of values, and NaN."""
    if [one.size for one in ours] != [one.size for one in stored]:
        return math.inf
    return max((_deviation(a, b) for a, b in zip(ours, stored, strict=True)), default=math.inf)


def _deviation(ours: Array, stored: Array) -> float:
    finite = np.isfinite(stored)
    if not np.array_equal(ours[~finite], stored[~finite], equal_nan=True):
        return math.inf
    ours, stored = ours[finite], stored[finite]
    gap, size = float(np.linalg.norm(ours - stored)), float(np.linalg.norm(stored))
    if gap == 0.0:
        return 0.0
    return gap / size if size and math.isfinite(gap) else math.inf


def to_text(outputs: Sequence[Array]) -> list[str]:
    """Return the values of each output as a line with seven digits, for a YAML file."""
    return [" ".join(f"{value:.7g}" for value in one) for one in outputs]


def from_text(lines: object) -> list[Array]:
    """Return the values of :func:`to_text`; empty if there are none, or if they are something else."""
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        return []
    try:
        return [np.array([float(word) for word in line.split()]) for line in lines]
    except ValueError:
        return []
