"""Judgement: outputs compared with torch's, and errors compared with the expected reason."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np

Array = np.ndarray

FLOAT32_LIMIT = 1e-4
"""Largest max|a - b| / max|b| of float32, by output."""

PEER_FACTOR = {"float16": 1.5, "bfloat16": 3.0}
"""Maximum ratio of an engine's error to torch's error in that dtype."""

FLOOR = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Errors up to this value are accepted regardless of torch's: twice the rounding error of an output."""

COSINE = 0.95
"""Least cosine of int8's outputs to float32's, on other samples than those of its calibration, for which 0.99 is
required.
"""

AGREES, REFUSED, FINDING = "agrees", "refused", "finding"

INT8_REFUSAL = r"int8.*cosine"
"""Accepted error on any target: an int8 model that is far from float32, with its cosine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one combination.

    Attributes:
        status: ``agrees``, ``refused`` (as expected) or ``finding``.
        error: the worst output's max|a - b| / max|b|; int8: its cosine. peer: torch's own error in that dtype.
        reason: of an error, or of a finding.
    """

    status: str
    error: float | None = None
    peer: float | None = None
    reason: str = ""


def error_of(got: Array, wanted: Array) -> float:
    """Return max|a - b| / max|b| of one output; infinite if shapes, or NaN and infinities, differ.

    For integers and booleans: the share of different values.
    """
    if got.shape != wanted.shape or got.dtype.kind != wanted.dtype.kind:
        return math.inf
    if wanted.dtype.kind != "f":
        return float(np.mean(got != wanted)) if wanted.size else 0.0
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (np.isfinite(a) & np.isfinite(b) | same).all():
        return math.inf
    with np.errstate(invalid="ignore"):
        gap = float(np.where(same, 0.0, np.abs(a - b)).max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return gap / scale if scale else (math.inf if gap else 0.0)


def cosine_of(got: Array, wanted: Array) -> float:
    """Return the cosine between one output and the correct one; for integers the share of equal values."""
    if got.shape != wanted.shape or not np.isfinite(got.astype(np.float64)).all():
        return -1.0
    if wanted.dtype.kind != "f":
        return float(np.mean(got == wanted)) if wanted.size else 1.0
    a, b = got.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else float(np.array_equal(a, b))


def judge_values(dtype: str, got: Sequence[Array], wanted: Sequence[Array], peer: Sequence[Array] | None) -> Verdict:
    """Judge a call's outputs.

    Args:
        dtype: requested. got: outputs. wanted: torch's in float32.
        peer: torch's in that dtype, for float16 and bfloat16.
    """
    if len(got) != len(wanted):
        return Verdict(FINDING, reason=f"{len(got)} outputs, torch has {len(wanted)}")
    if any(a.dtype.kind == "f" and a.size > 1 and np.ptp(a) == 0 for a in wanted):
        return Verdict(FINDING, reason="an output of torch's is one number all over: nothing is compared")
    if dtype == "int8":
        cosine = min(map(cosine_of, got, wanted))
        return Verdict(AGREES, cosine) if cosine >= COSINE else Verdict(FINDING, cosine, reason=f"cosine {cosine:.3f}")
    errors = list(map(error_of, got, wanted))
    if dtype == "float32":
        worst = max(errors)
        reason = "" if worst <= FLOAT32_LIMIT else f"error {worst:.1e}, above {FLOAT32_LIMIT:g}"
        return Verdict(FINDING if reason else AGREES, worst, reason=reason)
    assert peer is not None, "a narrow dtype is judged beside torch's own"
    return _beside_peer(dtype, errors, list(map(error_of, peer, wanted)))


def _beside_peer(dtype: str, errors: Sequence[float], peers: Sequence[float]) -> Verdict:
    """Judge the output with the largest error relative to torch's error in the same dtype."""
    limits = [max(PEER_FACTOR[dtype] * own, FLOOR[dtype]) for own in peers]
    i = max(range(len(errors)), key=lambda i: _ratio(errors[i], limits[i]))
    if errors[i] <= limits[i] and math.isfinite(errors[i]):
        return Verdict(AGREES, errors[i], peers[i])
    reason = f"error {errors[i]:.1e}, above {limits[i]:.1e}; torch's own {peers[i]:.1e}"
    return Verdict(FINDING, errors[i], peers[i], reason)


def _ratio(error: float, limit: float) -> float:
    return math.inf if math.isinf(error) else error / limit


def judge_refusal(combination: str, expected: Mapping[str, str], known: bool, kind: str, reason: str) -> Verdict:
    """Judge an error.

    Args:
        combination: such as ``dynamo/sdaa float16 3 SPA``.
        expected: patterns of combinations -> regular expressions of reasons.
        known: whether the zoo raises it intentionally.
        kind: the error's class. reason: its text.
    """
    if not known:
        return Verdict(FINDING, reason=f"{kind}: {reason}")
    if "\n" in reason.strip():
        return Verdict(FINDING, reason=f"{kind} of several lines: {reason.strip().splitlines()[0]}")
    allowed = [pattern for at, pattern in expected.items() if fnmatch(combination, at)]
    if combination.endswith(" int8"):
        allowed.append(INT8_REFUSAL)
    if any(re.search(pattern, reason) for pattern in allowed):
        return Verdict(REFUSED, reason=reason)
    return Verdict(FINDING, reason=f"refused: {kind}: {reason}")


def missing_refusal(combination: str, expected: Mapping[str, str], verdict: Verdict) -> Verdict:
    """Return a verdict, or a finding if an expected error was not raised."""
    must = [pattern for at, pattern in expected.items() if fnmatch(combination, at)]
    if verdict.status == AGREES and must:
        return Verdict(FINDING, verdict.error, verdict.peer, f"answered, though a refusal was expected: {must[0]}")
    return verdict
