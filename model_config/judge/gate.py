"""The accuracy gate: compares a metric with its reference, on the data that both runs evaluated.

The rule is the specification's: ``PASS`` where the relative change of the metric is within the tolerance, else
``FAIL``. The estimate for other data (:mod:`model_config.judge.bound`) is reported with the verdict; only a strict
gate requires it too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from engine import Array, ConfigError, DataError
from model_config.judge.bound import Estimate, Valued, estimate
from model_config.judge.pairs import Pairs, read_pairs
from model_config.results import Accuracy, Verdict
from utils.metrics.base import Metric
from utils.metrics.change import Change

__all__ = ["Pairs", "judge", "judge_figures", "read_pairs", "verdict_of"]

MOST_NAMES = 20
"""Samples with another prediction that a result lists by name."""


def judge(
    pairs: Pairs,
    metric: float,
    reference: float,
    *,
    metric_of: Metric | Valued | None = None,
    tolerance: float = 0.001,
    against: str = "onnx float32",
    strict: bool = False,
    seed: int = 0,
) -> Accuracy:
    """Judge the metric of a run by that of another run over the same samples, and by the records of both.

    Args:
        pairs: the records.
        metric, reference: the figures that the two runs reported, to six decimals at least.
        metric_of: the metric of the records; ``None``: their mean.
        tolerance: largest relative change that passes, above 0.
        against: what the reference is, for the reason.
        strict: also require a 95 % bound within the tolerance; without it the verdict is ``INCONCLUSIVE``.
        seed: of the groups that the estimate deletes.

    Returns:
        ``FAIL`` also where only one of the runs could evaluate a sample: no tolerance covers that.

    Raises:
        ConfigError: the tolerance is not above 0.
        DataError: the metrics are not those of the records.
    """
    why = _unusable(pairs, metric, reference)
    valued = metric_of if isinstance(metric_of, Valued) else Valued(pairs, metric_of)
    start = judge_figures(
        metric,
        reference,
        metric_name=pairs.metric_name,
        tolerance=tolerance,
        against=against,
        higher_is_better=valued.higher_is_better,
        why=why,
    )
    start = replace(start, samples=pairs.sampled, units=pairs.total)
    if why:
        return start
    mean = valued.is_mean()
    if metric_of is None and not mean:
        raise DataError(
            f"{pairs.metric_name}: its records are not one number per sample, so its value does not follow from them "
            "alone; pass the metric too"
        )
    _check_metrics(pairs, metric, reference, valued)
    result = _with_estimate(_with_differences(start, pairs, mean), estimate(pairs, valued, tolerance, seed))
    if strict and result.verdict is Verdict.PASS and not (result.bound is not None and result.bound <= tolerance):
        result = replace(result, verdict=Verdict.INCONCLUSIVE)
    return replace(result, reason=_reason(result, pairs.grouped))


def _with_differences(result: Accuracy, pairs: Pairs, mean: bool) -> Accuracy:
    """Add how many units differ, the names of the first of them, and for a mean the records better and worse."""
    changed = pairs.differing_units()
    names = pairs.unit_names and tuple(pairs.unit_names[unit] for unit in changed[:MOST_NAMES].tolist())
    better, worse = _flips(pairs, result.higher_is_better) if mean else (0, 0)
    return replace(result, differing=len(changed), changed=names, better=better, worse=worse)


def _with_estimate(result: Accuracy, found: Estimate | None) -> Accuracy:
    if found is None:
        return result
    return replace(
        result,
        method=found.method,
        interval=found.interval,
        bound=found.bound,
        needed=found.needed,
        tail=found.tail,
    )


def judge_figures(
    metric: float,
    reference: float,
    *,
    metric_name: str = "metric",
    tolerance: float = 0.01,
    against: str = "the source framework",
    higher_is_better: bool = True,
    directed: bool = True,
    why: str = "",
) -> Accuracy:
    """Judge two figures without records: a published metric, a secondary metric, a script without ``--json``.

    Args:
        metric, reference: the two figures; both 0 pass.
        metric_name: what they are.
        tolerance: largest relative change that passes, above 0.
        against: where the reference is from.
        higher_is_better: the metric's direction, for the result.
        directed: false for a metric of unknown direction, whose change is not called better or worse.
        why: why they cannot be compared; not empty: ``FAIL`` with this reason.

    Raises:
        ConfigError: the tolerance is not above 0.
    """
    if not 0 < tolerance < math.inf:
        raise ConfigError(f"tolerance {tolerance} must be above 0, such as 0.001 for 0.1 %")
    why = why or _not_comparable(metric, reference)
    drift = 0.0 if metric == reference == 0 else Change.of(metric, reference).relative
    verdict = Verdict.PASS if not why and drift is not None and abs(drift) <= tolerance else Verdict.FAIL
    result = Accuracy(
        verdict,
        f"{metric_name}: {why}; compared with {against}",
        against,
        metric_name,
        metric,
        reference,
        math.nan if drift is None else drift,
        tolerance,
        higher_is_better=higher_is_better,
    )
    return result if why else replace(result, reason=_reason(result, grouped=False, directed=directed))


def verdict_of(interval: tuple[float, float], tolerance: float) -> Verdict:
    """Return whether an interval of a relative difference is inside a tolerance, outside it, or across its limit."""
    low, high = interval
    if -tolerance <= low and high <= tolerance:
        return Verdict.PASS
    return Verdict.FAIL if low > tolerance or high < -tolerance else Verdict.INCONCLUSIVE


def _reason(result: Accuracy, grouped: bool, directed: bool = True) -> str:
    """Return the reason in one line: both metrics, the change, the predictions that differ, the bound."""
    places = max(2, math.ceil(-math.log10(100 * result.tolerance)) + 1)
    change = Change.of(result.metric, result.reference, result.higher_is_better)
    words = f"{result.metric_name} {result.metric:.5g} against {result.reference:.5g} of {result.against}: "
    percent = f"{100 * result.relative_difference:+.{places}f} %"
    words += percent + (f", {change.word}" if directed and any(digit in percent for digit in "123456789") else "")
    words += f"; tolerance {100 * result.tolerance:g} %"
    if result.samples:
        what = "units" if grouped else "predictions"
        words += f"; {_spaced(result.differing)} of {_spaced(result.units)} {what} differ"
        if result.better + result.worse:
            words += f" ({result.better} better, {result.worse} worse)"
    if result.bound is not None:
        words += f"; on other data at most {float(f'{100 * result.bound:.2g}'):g} % (95 %, {result.method})"
    if result.verdict is Verdict.INCONCLUSIVE:
        needed = "no number of samples" if result.needed is None else f"{_spaced(result.needed)} samples"
        words += f", which the strict gate does not accept: {needed} would do"
    return words


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ") if number >= 10_000 else str(number)


def _flips(pairs: Pairs, higher_is_better: bool) -> tuple[int, int]:
    """Return how many records are better and worse."""
    rose = int(np.count_nonzero(pairs.target > pairs.baseline))
    fell = int(np.count_nonzero(pairs.target < pairs.baseline))
    return (rose, fell) if higher_is_better else (fell, rose)


def _unusable(pairs: Pairs, metric: float, reference: float) -> str:
    """Return why the runs cannot be compared; empty where they can."""
    for names, did, did_not in ((pairs.lost, "baseline", "target"), (pairs.gained, "target", "baseline")):
        if names:
            return f"the {did_not} could not run {len(names)} samples that the {did} ran, the first is {names[0]}"
    if not pairs.total:
        return "no sample was evaluated in both runs"
    for records, run in zip(pairs.records, ("target", "baseline"), strict=True):
        bad = _not_finite(records)
        if bad:
            return f"{bad} records of the {run} are NaN or infinite"
    return _not_comparable(metric, reference)


def _not_finite(records: Array) -> int:
    """Return how many numbers are NaN or infinite; 0 for records of several columns, where such values may be valid."""
    if records.dtype.kind not in "fc" or records.ndim > 1:
        return 0
    return len(records) - int(np.count_nonzero(np.isfinite(records)))


def _not_comparable(metric: float, reference: float) -> str:
    for name, value in (("metric", metric), ("reference", reference)):
        if not math.isfinite(value):
            return f"{name} is {'NaN' if math.isnan(value) else value}"
    if metric and not reference:
        return f"the reference is 0 and the metric {metric:.6g}: the relative difference is undefined"
    return ""


def _check_metrics(pairs: Pairs, metric: float, reference: float, valued: Valued) -> None:
    """Raise if the figures are not those of the records, up to the six decimals that are printed."""
    for run, found, value in zip(("target", "baseline"), valued.whole(), (metric, reference), strict=True):
        if not math.isclose(found, value, rel_tol=1e-6, abs_tol=1e-6) or found == 0 != value:
            raise DataError(
                f"{pairs.metric_name}: the {run} printed {value:.6g}, but its records give {found:.6g}; compare "
                "records of the same run, and say how the metric follows from them where it is not their mean"
            )
