"""Result of ONNX Runtime alone for a model, in a fork, and comparison of a target's result with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.fuzz.case import ROOT, Case, Outcome
from tests.fuzz.run_alone import FAILED, UNABLE
from tests.fuzz.runner import run

BY_SAMPLE = ("sdaa",)
"""Targets that may compute samples one by one, so that a model may fail for larger batches only."""

NEAR = {None: 1e-3, "float32": 1e-3}
"""Maximum difference to ONNX Runtime alone relative to the largest value, in float32."""

HALF_NEAR = 0.05
"""The same in float16, for values in its range."""

ALONE = str(ROOT / "tests" / "fuzz" / "run_alone.py")
ALONE_LIMIT = 20.0

ZOO_IS_ABLE = ("Cannot parse data from external tensors",)
"""Error messages of ONNX Runtime for files that the zoo repairs."""


def _alone(path: Path, folder: Path, optimised: str = "yes") -> tuple[Outcome, Path]:
    """Return the result of ONNX Runtime alone for a model, and the path of its outputs."""
    place = folder / "alone"
    place.mkdir(exist_ok=True)
    out = place / f"{optimised}.npz"
    case = Case((ALONE, str(path), str(out), optimised), "")
    return run(case, place, {}, ALONE_LIMIT), out


def excused(path: Path, folder: Path, outcome: Outcome) -> str | None:
    """Return whether ONNX Runtime alone also crashes or hangs (endless loop) on a model."""
    alone, _ = _alone(path, folder)
    dies = alone.code is not None and alone.code < 0
    return "so does ONNX Runtime alone" if alone.code is None or (dies and outcome.code is not None) else None


def judge(path: Path, folder: Path, target: str, dtype: str | None, outcome: Outcome) -> str | None:
    """Return the finding of a target's result compared with ONNX Runtime alone."""
    if "nobody foresaw" in outcome.err:
        return f"no line of its own: {outcome.err.strip()[-300:]}"
    if outcome.code == 2 and path.name == "model.onnx" and path.name not in outcome.err:
        return f"the file is not named: {outcome.err.strip()[-300:]}"
    if outcome.code != 0:
        return None
    alone, out = _alone(path, folder)
    if alone.code is None or alone.code < 0:
        return None  # then there is nothing to compare with
    if alone.code == UNABLE or (alone.code == FAILED and target in BY_SAMPLE):
        return None
    if any(words in alone.err for words in ZOO_IS_ABLE):
        return None
    if alone.code:
        return f"answered, and ONNX Runtime alone refuses: {alone.err.strip()[:300]}"
    wrong = _different(out, folder / "out.npz", dtype)
    if wrong is None:
        return None
    alone, out = _alone(path, folder, "no")  # its optimisations are not all right
    return wrong if alone.code == 0 and _different(out, folder / "out.npz", dtype) else None


def _different(wanted: Path, found: Path, dtype: str | None) -> str | None:
    if dtype == "int8":
        return None
    with np.load(wanted) as want, np.load(found) as got:
        if sorted(want) != sorted(got):
            return f"{len(got)} outputs instead of {len(want)}"
        for name in sorted(want):
            if wrong := _unlike(want[name], got[name], dtype):
                return f"output {name}: {wrong}"
    return None


def _unlike(want: np.ndarray, got: np.ndarray, dtype: str | None) -> str | None:
    if want.shape != got.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if want.dtype.kind != got.dtype.kind:
        return f"{got.dtype} instead of {want.dtype}"
    if want.dtype.kind != "f":
        return None if dtype == "float16" or np.array_equal(want, got) else "other values"
    want, got = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(want)
    largest = np.abs(want[finite]).max(initial=0.0)
    if dtype == "float16" and (not finite.all() or largest > 1e4 or 0 < largest < 1e-3):
        return None
    if not np.array_equal(np.isfinite(got), finite):
        return "NaN or infinite elsewhere"
    error = np.abs(want[finite] - got[finite]).max(initial=0.0)
    near = NEAR.get(dtype, HALF_NEAR)
    return f"differs by {error:.3g} of {largest:.3g}" if error > near * max(largest, 1e-6) else None
