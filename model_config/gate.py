"""The accuracy gate: is a metric the one it must equal, and are there samples enough to say so.

The true drift is d = (E[target] - E[baseline]) / E[baseline] over the population the samples are drawn from, and the
gate asks whether \\|d\\| is within the tolerance. With a 95 % confidence interval of d it says

* ``PASS`` where the interval lies inside the tolerance, on both sides,
* ``FAIL`` where it lies wholly outside,
* ``INCONCLUSIVE`` otherwise, with the number of samples that would decide.

Either wrong answer has a probability of at most 5 %. The comparison is paired, sample by sample, so that only samples
on which the two runs differ make the interval wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np

from engine.base import Array, ConfigError, DataError
from model_config.intervals import WIDEST, Z_DECIDES, Compute, mean, of_flips, of_resamples, whole_samples, wilson
from model_config.results import Accuracy, Verdict
from utils.pipeline.records import SampleRecord, SampleRecords


@dataclass(frozen=True, slots=True)
class Pairs:
    """Records of two runs over the same samples.

    Attributes:
        target, baseline: one record per sample that both ran; the first dimension is the samples, and there are others
            only where the metric is given by a function.
        metric_name: what the records are of.
        labels: the samples' labels, int64; ``None`` where not all have one.
        lost, gained: names of the samples that only the baseline, and only the target, could run.
    """

    target: Array
    baseline: Array
    metric_name: str
    labels: Array | None = None
    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.target.shape != self.baseline.shape:
            raise DataError(
                f"records of shape {self.target.shape} cannot be paired with records of shape {self.baseline.shape}; "
                "compare two runs over the same samples"
            )


def read_pairs(target: Path, baseline: Path) -> Pairs:
    """Read two records files (:mod:`utils.pipeline.records`) and pair their rows by index, name and label.

    Samples that neither run could do are left out; those that only one could do are named in the result, and
    :func:`judge` fails them.

    Raises:
        DataError: a file cannot be read, or they are not of the same samples in the same order, or not of one metric.
    """
    files = SampleRecords(target), SampleRecords(baseline)
    if files[0].metric_name != files[1].metric_name:
        raise DataError(
            f"{target} has {files[0].metric_name} and {baseline} has {files[1].metric_name}; compare runs of one metric"
        )
    rows: list[tuple[float, float]] = []
    labels: list[int | None] = []
    alone: tuple[list[str], list[str]] = [], []
    for number, (ours, theirs) in enumerate(zip_longest(*files), start=2):
        if ours is None or theirs is None or _identity(ours) != _identity(theirs):
            raise DataError(
                f"{target} and {baseline} are not of the same samples: row {number} is {_words(ours)} in the first and "
                f"{_words(theirs)} in the second; run both on the same data"
            )
        if ours.value is not None and theirs.value is not None:
            rows.append((ours.value, theirs.value))
            labels.append(ours.label)
        elif ours.value is not theirs.value:
            alone[ours.value is not None].append(ours.name)
    values = np.array(rows, dtype=np.float64).reshape(-1, 2)
    known = [label for label in labels if label is not None]
    return Pairs(
        values[:, 0].copy(),
        values[:, 1].copy(),
        files[0].metric_name,
        np.array(known, dtype=np.int64) if len(known) == len(labels) else None,
        tuple(alone[0]),
        tuple(alone[1]),
    )


def judge(
    pairs: Pairs,
    metric: float,
    reference: float,
    *,
    tolerance: float = 0.001,
    against: str = "onnx float32",
    compute: Compute | None = None,
    seed: int = 0,
) -> Accuracy:
    """Judge a metric by the records of two runs.

    Records that are right or wrong (0 or 1) get the score interval (:func:`model_config.intervals.score_interval`) and
    the bootstrap interval, of both the wider ends; ``FAIL`` also asks for a significant exact McNemar test. All others
    get the bootstrap interval, made wider by what the samples cannot show: with a probability of 2.5 % a share
    1 - 0.025 ** (1 / n) of the population, or more, is of a kind that is not among them, and each such sample may move
    by the full range of the records.

    A sample that only one of the runs could do fails: no tolerance covers an engine that refuses samples.

    Args:
        pairs: the records.
        metric, reference: what the two runs printed, to six decimals at least.
        tolerance: largest relative difference that passes, above 0.
        against: what the reference is, for the reason.
        compute: where the metric is not the mean of its records: called with all records of a run and the indices of
            a resample, ``2 * RESAMPLES`` times.
        seed: of the resamples; the same pairs in any order give the same answer where the metric is a mean.

    Raises:
        ConfigError: the tolerance is not above 0.
        DataError: the metrics are not those of the records.
    """
    _check_tolerance(tolerance)
    why = _unusable(pairs, metric, reference)
    start = _failed(why, against, pairs.metric_name, metric, reference, tolerance)
    start = replace(start, samples=len(pairs.target))
    if why:
        return start
    function = mean if compute is None else compute
    _check_metrics(pairs, metric, reference, function)
    if compute is None and _binary(pairs):
        evidence = of_flips(pairs.target, pairs.baseline, tolerance, seed)
    else:
        evidence = of_resamples(pairs.target, pairs.baseline, reference, tolerance, function, seed)
    verdict = _verdict(evidence.interval, tolerance)
    flat = pairs.target.ndim == 1
    result = replace(
        start,
        verdict=verdict,
        interval=evidence.interval,
        better=int(np.count_nonzero(pairs.target > pairs.baseline)) if flat else 0,
        worse=int(np.count_nonzero(pairs.target < pairs.baseline)) if flat else 0,
        p_value=evidence.p_value,
        needed=evidence.needed if verdict is Verdict.INCONCLUSIVE else None,
        bootstrap=evidence.bootstrap,
    )
    return _with_reason(result)


def judge_reference(
    metric: float,
    reference: float,
    samples: int,
    *,
    metric_name: str = "metric",
    tolerance: float = 0.01,
    against: str = "the source framework",
) -> Accuracy:
    """Judge a metric by a figure without records, such as a published one.

    A point comparison: within the tolerance passes. What is outside fails only where chance cannot explain it, were
    the figure measured on other samples: where Wilson's 95 % interval of the metric, as a share of ``samples``, is
    outside too; otherwise it is inconclusive. A share has the largest variance of all means of records from 0 to 1, so
    the interval holds for them too; a metric that is not from 0 to 1 has none and is judged by the point alone.

    Raises:
        ConfigError: the tolerance is not above 0.
    """
    _check_tolerance(tolerance)
    why = _unusable_figures(metric, reference)
    start = _failed(why, against, metric_name, metric, reference, tolerance)
    if why:
        return start
    drift = start.relative_difference
    share = samples > 0 and 0 <= metric <= 1 and 0 < reference <= 1
    interval = wilson(metric, samples, reference) if share else (drift, drift)
    verdict = Verdict.PASS if abs(drift) <= tolerance else _verdict(interval, tolerance)
    needed = None
    if verdict is Verdict.INCONCLUSIVE:
        rate = (metric * samples + 0.5) / (samples + 1)
        margin = (abs(drift) - tolerance) * reference
        needed = whole_samples(Z_DECIDES**2 * rate * (1 - rate) / margin**2, samples)
    return _with_reason(replace(start, verdict=verdict, interval=interval if share else None, needed=needed))


def _verdict(interval: tuple[float, float], tolerance: float) -> Verdict:
    low, high = interval
    if -tolerance <= low and high <= tolerance:
        return Verdict.PASS
    return Verdict.FAIL if low > tolerance or high < -tolerance else Verdict.INCONCLUSIVE


def _with_reason(result: Accuracy) -> Accuracy:
    """Return the same with the one line that a maintainer reads."""
    places = max(2, math.ceil(-math.log10(100 * result.tolerance)) + 1)
    words = (
        f"{result.metric_name} {result.metric:.5g} against {result.reference:.5g} of {result.against}: "
        f"{100 * result.relative_difference:+.{places}f} %"
    )
    if result.interval is not None:
        low, high = (f"{100 * end:+.{places}f}" for end in result.interval)
        words += f" (95 %: {low} to {high} %)"
    if result.samples:
        flips = ("better", "worse") if result.p_value is not None else ("rose", "fell")
        words += f", {result.better} {flips[0]}, {result.worse} {flips[1]} of {_spaced(result.samples)}"
    words += f"; tolerance {100 * result.tolerance:g} %"
    if result.verdict is Verdict.FAIL:
        words += ": outside"
    elif result.verdict is Verdict.INCONCLUSIVE and result.needed is not None:
        words += f": {_spaced(result.needed)} samples would decide"
    elif result.verdict is Verdict.INCONCLUSIVE:
        unknown = result.bootstrap is not None and max(map(abs, result.bootstrap)) >= WIDEST
        why = "the reference cannot be told from 0" if unknown else "the difference sits at the tolerance"
        words += f": no number of samples can be named, since {why}"
    return replace(result, reason=words)


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ") if number >= 10_000 else str(number)


def _failed(why: str, against: str, metric_name: str, metric: float, reference: float, tolerance: float) -> Accuracy:
    """Return the failure of a comparison that has no interval."""
    drift = (metric - reference) / reference if reference else math.nan
    reason = f"{metric_name}: {why}; compared with {against}"
    return Accuracy(Verdict.FAIL, reason, against, metric_name, metric, reference, drift, tolerance)


def _unusable(pairs: Pairs, metric: float, reference: float) -> str:
    """Say why nothing can be compared; empty where it can."""
    figures = _unusable_figures(metric, reference)
    if figures:
        return figures
    for names, did, did_not in ((pairs.lost, "baseline", "target"), (pairs.gained, "target", "baseline")):
        if names:
            return f"the {did_not} could not run {len(names)} samples that the {did} ran, the first is {names[0]}"
    if not len(pairs.target):
        return "there is no sample that both runs could do"
    for records, run in ((pairs.target, "target"), (pairs.baseline, "baseline")):
        bad = len(records) - np.count_nonzero(np.isfinite(records.reshape(len(records), -1)).all(axis=1))
        if bad:
            return f"{bad} records of the {run} are NaN or infinite"
    return ""


def _unusable_figures(metric: float, reference: float) -> str:
    for name, value in (("metric", metric), ("reference", reference)):
        if not math.isfinite(value):
            return f"{name} is {'NaN' if math.isnan(value) else value}"
    return "" if reference else "the reference is 0, so that there is no relative difference"


def _check_metrics(pairs: Pairs, metric: float, reference: float, compute: Compute) -> None:
    """Refuse figures that are not those of the records, up to the six decimals that are printed."""
    whole = np.arange(len(pairs.target))
    for run, records, value in (("target", pairs.target, metric), ("baseline", pairs.baseline, reference)):
        found = float(compute(records, whole))
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


def _identity(record: SampleRecord) -> tuple[int, str, int | None]:
    return record.index, record.name, record.label


def _words(record: SampleRecord | None) -> str:
    if record is None:
        return "missing"
    return f"{record.index}, {record.name}" + ("" if record.label is None else f", label {record.label}")
