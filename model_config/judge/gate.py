"""The accuracy gate: is a metric the one it must equal, and are there samples enough to say so.

The true drift is d = (E[target] - E[baseline]) / \\|E[baseline]\\| over the population the samples are drawn from, and
the gate asks whether \\|d\\| is within the tolerance. With a 95 % confidence interval of d it says

* ``PASS`` where the interval lies inside the tolerance, on both sides,
* ``FAIL`` where it lies wholly outside,
* ``INCONCLUSIVE`` otherwise, with the number of samples that would decide.

Either wrong answer has a probability of at most 5 %. The comparison is paired, unit by unit (a sample, or all samples
of a person, a query, a video), so that only units on which the two runs differ make the interval wider.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from engine import Array, ConfigError, DataError
from model_config.judge.intervals import (
    TAIL,
    UNSEEN,
    WIDEST,
    Z_DECIDES,
    Evidence,
    of_flips,
    of_grouped_flips,
    of_means,
    whole_samples,
    wilson,
)
from model_config.judge.pairs import Pairs, read_pairs
from model_config.judge.resampling import Valued, is_mean, of_values
from model_config.results import Accuracy, Verdict
from utils.metrics.base import Metric
from utils.metrics.change import Change

__all__ = ["Pairs", "judge", "judge_reference", "read_pairs", "verdict_of"]


def judge(
    pairs: Pairs,
    metric: float,
    reference: float,
    *,
    metric_of: Metric | Valued | None = None,
    tolerance: float = 0.001,
    against: str = "onnx float32",
    seed: int = 0,
    alone: bool = False,
) -> Accuracy:
    """Judge a metric by the records of two runs.

    Units are resampled, never records that belong together. Right or wrong records (0 or 1) whose mean is the metric
    get the score interval and the bootstrap interval, of both the wider ends (:func:`.intervals.of_flips`, or
    :func:`.intervals.of_grouped_flips`); ``FAIL`` also asks for a significant exact McNemar test. Other records whose
    mean is the metric get a paired bootstrap, any other metric one of its values over the same weights of units in both
    runs (:func:`.intervals.of_means`, :func:`.resampling.of_values`); both are made wider by what no unit shows.

    A sample that only one of the runs could do fails: no tolerance covers an engine that refuses samples. Where both
    metrics are 0 there is no relative difference; equal records then pass where they bound the share of units that
    could differ by the tolerance.

    Args:
        pairs: the records.
        metric, reference: what the two runs printed, to six decimals at least.
        metric_of: computes the metric of weighted records and knows its direction, or what it has said of these
            records (:class:`.resampling.Valued`); ``None``: the mean of the records.
        tolerance: largest relative difference that passes, above 0.
        against: what the reference is, for the reason.
        seed: of the resamples; the same pairs in any order give the same answer where the metric is a mean.
        alone: of a metric that is no mean, also count the units in which it is better and worse, each taken alone; it
            is computed twice for each that differs.

    Raises:
        ConfigError: the tolerance is not above 0.
        DataError: the metrics are not those of the records.
    """
    _check_tolerance(tolerance)
    higher = metric_of is None or metric_of.higher_is_better
    why = _unusable(pairs, metric, reference)
    start = _failed(why, against, pairs.metric_name, metric, reference, tolerance)
    start = replace(start, samples=pairs.sampled, units=pairs.total, higher_is_better=higher)
    if why:
        return start
    valued = Valued(pairs, metric_of) if isinstance(metric_of, Metric) else metric_of
    return _judged(start, pairs, valued, seed, alone)


def _judged(start: Accuracy, pairs: Pairs, valued: Valued | None, seed: int, alone: bool) -> Accuracy:
    """Judge figures that are finite by records that can be compared."""
    mean = is_mean(pairs, None) if valued is None else valued.is_mean()
    if not mean and valued is None:
        raise DataError(
            f"{pairs.metric_name}: its records are not one number per sample, so its value does not follow from them "
            "alone; pass the metric too"
        )
    _check_metrics(pairs, start.metric, start.reference, valued)
    counted = mean or alone
    better, worse = _risen(pairs, start.higher_is_better, None if mean else valued) if counted else (0, 0)
    result = replace(start, better=better, worse=worse)
    if result.reference == 0:
        return _both_zero(result, pairs)
    evidence = _evidence(pairs, result.reference, valued, mean, result.tolerance, seed)
    verdict = verdict_of(evidence.interval, result.tolerance)
    result = replace(
        result,
        verdict=verdict,
        interval=evidence.interval,
        p_value=evidence.p_value,
        needed=evidence.needed if verdict is Verdict.INCONCLUSIVE else None,
        bootstrap=evidence.bootstrap,
    )
    return _with_reason(result, _counts(result, pairs, mean, valued is not None), directed=valued is not None)


def _evidence(
    pairs: Pairs, reference: float, valued: Valued | None, mean: bool, tolerance: float, seed: int
) -> Evidence:
    """Weigh the records by the method that fits them: by a metric, or as their mean where it is that."""
    if valued is not None and not mean:
        return of_values(pairs, valued, reference, tolerance, seed)
    target, baseline = (records.astype(np.float64) for records in (pairs.target, pairs.baseline))
    units = pairs.codes[0] if pairs.grouped else None
    if not _binary(pairs):
        bounds = None if valued is None else valued.bounds
        return of_means(target, baseline, units, pairs.total, tolerance, bounds, seed)
    if units is None:
        return of_flips(target, baseline, tolerance, seed)
    return of_grouped_flips(target, baseline, units, pairs.total, tolerance, seed)


def _risen(pairs: Pairs, higher_is_better: bool, valued: Valued | None) -> tuple[int, int]:
    """Return how many records are better and worse; by a metric that is no mean of them, how many units."""
    if valued is not None:
        rose, fell = valued.risen()
    else:
        rose, fell = (
            int(np.count_nonzero(side)) for side in (pairs.target > pairs.baseline, pairs.target < pairs.baseline)
        )
    return (rose, fell) if higher_is_better else (fell, rose)


def _both_zero(start: Accuracy, pairs: Pairs) -> Accuracy:
    """Judge two metrics of 0 by how many units have the same records in both runs."""
    differ, units = pairs.differing(), pairs.total
    change = Change.of(start.metric, start.reference)
    words = f"{start.metric_name} {change.text} ({start.against})"
    if differ:
        reason = f"{words}, and the records of {_spaced(differ)} of {_spaced(units)} units differ"
        return replace(start, verdict=Verdict.INCONCLUSIVE, reason=reason, relative_difference=0.0)
    share = 1 - TAIL ** (1 / units)
    reason = (
        f"{words}, but all {_spaced(units)} units have equal records: at most {100 * share:.2g} % of all could differ"
    )
    reason += f" (95 %); tolerance {100 * start.tolerance:g} %"
    if share <= start.tolerance:
        return replace(start, verdict=Verdict.PASS, reason=reason, relative_difference=0.0)
    needed = whole_samples(UNSEEN / start.tolerance * start.samples / units, start.samples)
    reason += "" if needed is None else f": {_spaced(needed)} samples would decide"
    return replace(start, verdict=Verdict.INCONCLUSIVE, reason=reason, relative_difference=0.0, needed=needed)


def judge_reference(
    metric: float,
    reference: float,
    samples: int,
    *,
    metric_name: str = "metric",
    tolerance: float = 0.01,
    against: str = "the source framework",
    share: bool = True,
    higher_is_better: bool = True,
) -> Accuracy:
    """Judge a metric by a figure without records, such as a published one.

    A point comparison: within the tolerance passes. What is outside fails only where chance cannot explain it, were
    the figure measured on other samples: where Wilson's 95 % interval of the metric, as a share of ``samples``, is
    outside too; otherwise it is inconclusive. A share has the largest variance of all means of records from 0 to 1, so
    the interval holds for them too; any other metric has none and is judged by the point alone.

    Args:
        metric, reference: the two figures.
        samples: how many the metric covers; units where several samples belong to one.
        metric_name: what it is.
        tolerance: largest relative difference that passes.
        against: where the reference is from.
        share: the metric is a mean of records from 0 to 1; one outside 0 to 1 is none in any case.
        higher_is_better: the metric's direction, for the result.

    Raises:
        ConfigError: the tolerance is not above 0.
    """
    _check_tolerance(tolerance)
    why = _unusable_figures(metric, reference)
    start = _failed(why, against, metric_name, metric, reference, tolerance)
    start = replace(start, higher_is_better=higher_is_better)
    if why:
        return start
    drift = start.relative_difference
    share = share and samples > 0 and 0 <= metric <= 1 and 0 < reference <= 1
    interval = wilson(metric, samples, reference) if share else (drift, drift)
    verdict = Verdict.PASS if abs(drift) <= tolerance else verdict_of(interval, tolerance)
    needed = None
    if verdict is Verdict.INCONCLUSIVE:
        rate = (metric * samples + 0.5) / (samples + 1)
        margin = (abs(drift) - tolerance) * reference
        needed = whole_samples(Z_DECIDES**2 * rate * (1 - rate) / margin**2, samples)
    found = replace(start, verdict=verdict, interval=interval if share else None, needed=needed)
    return _with_reason(found, directed=not higher_is_better)


def verdict_of(interval: tuple[float, float], tolerance: float) -> Verdict:
    """Return what an interval of a relative difference says of a tolerance."""
    low, high = interval
    if -tolerance <= low and high <= tolerance:
        return Verdict.PASS
    return Verdict.FAIL if low > tolerance or high < -tolerance else Verdict.INCONCLUSIVE


def _counts(result: Accuracy, pairs: Pairs, mean: bool, directed: bool) -> str:
    """Return on how many of the samples or units the runs differ, in words."""
    groups = f" in {_spaced(pairs.total)} units" if pairs.grouped else ""
    if not mean:
        flips = f" ({result.better} better, {result.worse} worse)" if result.better + result.worse else ""
        return f", {_spaced(pairs.differing())} of {_spaced(pairs.total)} units differ{flips}"
    words = ("better", "worse") if directed or result.p_value is not None else ("rose", "fell")
    return f", {result.better} {words[0]}, {result.worse} {words[1]} of {_spaced(len(pairs.target))}{groups}"


def _with_reason(result: Accuracy, counts: str = "", *, directed: bool = False) -> Accuracy:
    """Return the same with the one line that a maintainer reads; ``directed``: say whether it is for the better."""
    places = max(2, math.ceil(-math.log10(100 * result.tolerance)) + 1)
    change = Change.of(result.metric, result.reference, result.higher_is_better)
    percent = change.percent(places)
    words = f"{result.metric_name} {result.metric:.5g} against {result.reference:.5g} of {result.against}: {percent}"
    if directed and any(digit in percent for digit in "123456789"):
        words += f", {change.word}"
    if result.interval is not None:
        low, high = (f"{100 * end:+.{places}f}" for end in result.interval)
        words += f" (95 %: {low} to {high} %)"
    words += f"{counts}; tolerance {100 * result.tolerance:g} %{_conclusion(result)}"
    return replace(result, reason=words)


def _conclusion(result: Accuracy) -> str:
    """Return how the line ends: what a result that does not pass means, and what would decide it."""
    if result.verdict is not Verdict.INCONCLUSIVE:
        return ": outside" if result.verdict is Verdict.FAIL else ""
    if result.needed is not None:
        return f": {_spaced(result.needed)} samples would decide"
    unknown = result.bootstrap is not None and max(map(abs, result.bootstrap)) >= WIDEST
    why = "the reference cannot be told from 0" if unknown else "the difference sits at the tolerance"
    return f": no number of samples can be named, since {'there is one unit alone' if result.units == 1 else why}"


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ") if number >= 10_000 else str(number)


def _failed(why: str, against: str, metric_name: str, metric: float, reference: float, tolerance: float) -> Accuracy:
    """Return the failure of a comparison that has no interval."""
    drift = Change.of(metric, reference).relative
    reason = f"{metric_name}: {why}; compared with {against}"
    return Accuracy(
        Verdict.FAIL, reason, against, metric_name, metric, reference, math.nan if drift is None else drift, tolerance
    )


def _unusable(pairs: Pairs, metric: float, reference: float) -> str:
    """Say why nothing can be compared; empty where it can."""
    for names, did, did_not in ((pairs.lost, "baseline", "target"), (pairs.gained, "target", "baseline")):
        if names:
            return f"the {did_not} could not run {len(names)} samples that the {did} ran, the first is {names[0]}"
    if not pairs.total:
        return "there is no sample that both runs could do"
    for records, run in ((pairs.target, "target"), (pairs.baseline, "baseline")):
        bad = _not_finite(records)
        if bad:
            return f"{bad} records of the {run} are NaN or infinite"
    return "" if metric == reference == 0 else _unusable_figures(metric, reference)


def _not_finite(records: Array) -> int:
    """Return how many numbers are NaN or infinite; in records of several columns that may have a meaning."""
    if records.dtype.kind not in "fc" or records.ndim > 1:
        return 0
    return len(records) - int(np.count_nonzero(np.isfinite(records)))


def _unusable_figures(metric: float, reference: float) -> str:
    for name, value in (("metric", metric), ("reference", reference)):
        if not math.isfinite(value):
            return f"{name} is {'NaN' if math.isnan(value) else value}"
    return "" if reference else f"the reference is 0 and the metric {metric:.6g}: there is no relative difference"


def _check_metrics(pairs: Pairs, metric: float, reference: float, valued: Valued | None) -> None:
    """Refuse figures that are not those of the records, up to the six decimals that are printed."""
    figures = (float(pairs.target.mean()), float(pairs.baseline.mean())) if valued is None else valued.whole()
    for run, found, value in zip(("target", "baseline"), figures, (metric, reference), strict=True):
        if not math.isclose(found, value, rel_tol=1e-6, abs_tol=1e-6) or found == 0 != value:
            raise DataError(
                f"{pairs.metric_name}: the {run} printed {value:.6g}, but its records give {found:.6g}; compare "
                "records of the same run, and say how the metric follows from them where it is not their mean"
            )


def _check_tolerance(tolerance: float) -> None:
    if not 0 < tolerance < math.inf:
        raise ConfigError(f"tolerance {tolerance} must be above 0, such as 0.001 for 0.1 %")


def _binary(pairs: Pairs) -> bool:
    return all(np.isin(records, (0, 1)).all() for records in (pairs.target, pairs.baseline))
