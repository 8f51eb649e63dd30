"""Compare a training on two devices: the first step where losses differ, divergence, and the metric over several seeds.

Equal losses and metrics pass. Otherwise d is the mean over seeds of (metric on the device - metric on the baseline),
relative to the baseline's mean. With Student's 95 % interval of d, the verdict is that of the inference gate: ``PASS``
if it lies inside the tolerance, ``FAIL`` if it lies wholly outside, else ``INCONCLUSIVE``. The interval assumes
normally distributed differences; a rare failure that no seed shows (one run in a hundred diverges) is not covered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, stdev

from engine import DataError
from model_config.judge.bound import Z_DECIDES, Z, t_factor, whole_samples
from model_config.judge.gate import verdict_of
from model_config.results import Verdict
from toolkit.training.gate.runs import Run

BOUNDS = (0.001, 0.01)
"""Relative differences that are always reported: the zoo's between targets, and between frameworks."""

_FEW = 100
_ENDS = 10  # start and end of a curve are the means of its first and last tenth


@dataclass(frozen=True, slots=True)
class Pair:
    """The two runs of a seed."""

    baseline: Run  # with the same steps, unless ``trouble`` is set
    target: Run  # with the same steps, unless ``trouble`` is set
    parted: int | None  # the first step whose losses differ; ``None`` if none does
    largest: float  # largest relative difference of two losses of a step
    trouble: str  # why the target's run is wrong; empty if nothing was found

    @property
    def same(self) -> bool:
        """Whether losses and metric are bit-identical."""
        return self.parted is None and not self.trouble and self.target.metric == self.baseline.metric

    @property
    def difference(self) -> float:
        """Difference of the metrics."""
        return self.target.metric - self.baseline.metric


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict on a training."""

    verdict: Verdict
    reason: str  # one line
    difference: float | None = None  # relative, of the mean metrics; ``None`` if undefined
    interval: tuple[float, float] | None = None  # its 95 % interval; ``None`` if the seeds do not determine one
    needed: int | None = None  # number of seeds that would decide; ``None`` if decided, or if no number would
    bounds: tuple[Verdict, ...] = ()  # the verdict at each of :data:`BOUNDS`


def paired(baseline: Run, target: Run) -> Pair:
    """Compare the runs of a seed; raise DataError if the baseline's losses or metric are not finite."""
    for step, loss in zip(baseline.steps, baseline.losses, strict=True):
        if not math.isfinite(loss):
            fix = "the script itself diverges; lower its learning rate"
            raise DataError(f"{baseline.name}: the loss of step {step} is {loss}: {fix}")
    if not math.isfinite(baseline.metric):
        raise DataError(f"{baseline.name}: its metric is {baseline.metric}; evaluate on samples that give one")
    both = list(zip(baseline.steps, target.steps, baseline.losses, target.losses, strict=False))
    parted = next((there for here, there, a, b in both if here != there or a != b), None)
    largest = max((_relative(a, b) for here, there, a, b in both if here == there), default=0.0)
    trouble = _trouble(baseline, target)
    return Pair(baseline, target, parted, largest, trouble)


def _relative(a: float, b: float) -> float:
    if a == b:
        return 0.0
    found = abs(b - a) / max(abs(a), abs(b))
    return found if math.isfinite(found) else math.inf


def _trouble(baseline: Run, target: Run) -> str:
    """Return why the target's run is wrong regardless of its metric; "" if it is not."""
    for step, loss in zip(target.steps, target.losses, strict=True):
        if not math.isfinite(loss):
            return f"the loss of step {step} is {loss}"
    if target.steps != baseline.steps:
        return f"it has {len(target.steps)} steps, and {len(baseline.steps)} on {baseline.device}"
    if not math.isfinite(target.metric):
        return f"its metric is {target.metric}"
    (began, ended), (_, wanted) = _ends(target.losses), _ends(baseline.losses)
    if ended > began > wanted:
        return (
            f"it diverges: the loss begins at {began:.4g} and ends at {ended:.4g} ({wanted:.4g} on {baseline.device})"
        )
    return ""


def _ends(losses: Sequence[float]) -> tuple[float, float]:
    count = max(1, len(losses) // _ENDS)
    return fmean(losses[:count]), fmean(losses[-count:])


def judge(pairs: Sequence[Pair], tolerance: float = BOUNDS[0]) -> Outcome:
    """Judge a training by its seeds (at least one); ``tolerance`` is the largest relative difference that passes.

    Raise DataError if two seeds gave the same losses: the script ignores its seed.
    """
    _check_seeds(pairs)
    target = pairs[0].target.device
    bad = [pair for pair in pairs if pair.trouble]
    if bad:
        more = f"; {len(bad)} of {len(pairs)} seeds" if len(pairs) > 1 else ""
        outcome = Outcome(Verdict.FAIL, f"{bad[0].target.name}: {bad[0].trouble}{more}")
        return replace(outcome, bounds=tuple(Verdict.FAIL for _ in BOUNDS))
    if all(pair.same for pair in pairs):
        count = sum(len(pair.target.losses) for pair in pairs)
        reason = f"all {count} losses and the metrics of {_seeds(len(pairs))} are those of {pairs[0].baseline.device}, "
        return Outcome(Verdict.PASS, reason + "bit for bit", 0.0, bounds=tuple(Verdict.PASS for _ in BOUNDS))
    return _weighed(pairs, tolerance, f"{target} against {pairs[0].baseline.device}, {_seeds(len(pairs))}")


def _check_seeds(pairs: Sequence[Pair]) -> None:
    seen: dict[tuple[float, ...], Run] = {}
    for pair in pairs:
        other = seen.setdefault(pair.baseline.losses, pair.baseline)
        if other is not pair.baseline:
            seeds = f"seeds {other.seed} and {pair.baseline.seed}"
            raise DataError(f"{seeds} give the same losses on {other.device}; use the value of --seed in the script")


def _weighed(pairs: Sequence[Pair], tolerance: float, what: str) -> Outcome:
    """Judge the metrics of runs that differ."""
    reference = fmean(pair.baseline.metric for pair in pairs)
    drift = fmean(pair.difference for pair in pairs)
    words = f"{what}: metric {reference + drift:.5g} against {reference:.5g}"
    undecided = Outcome(Verdict.INCONCLUSIVE, words, bounds=tuple(Verdict.INCONCLUSIVE for _ in BOUNDS))
    if reference == 0:
        return replace(undecided, reason=f"{words}: the relative difference from 0 is undefined")
    relative = drift / abs(reference)
    undecided = replace(undecided, difference=relative)
    words += f": {100 * relative:+.3g} %"
    spread = _spread(pairs)
    if spread is None:
        why = (
            "one seed shows no spread" if len(pairs) == 1 else "the metric is the same in every run, the losses are not"
        )
        fix = "more seeds" if len(pairs) == 1 else "evaluate on more samples, or with a finer metric"
        return replace(undecided, reason=f"{words}, but {why}: {fix}")
    error = spread / math.sqrt(len(pairs)) / abs(reference)
    half = t_factor(len(pairs)) * Z * error
    interval = relative - half, relative + half
    verdict = verdict_of(interval, tolerance)
    words += f" (95 %: {100 * interval[0]:+.3g} to {100 * interval[1]:+.3g} %); tolerance {100 * tolerance:g} %"
    needed = None
    if verdict is Verdict.INCONCLUSIVE:
        needed = _needed(abs(relative), error * math.sqrt(len(pairs)), tolerance, len(pairs))
        words += f": {_seeds(needed)} would decide" if needed else ": no number of seeds would decide"
    elif verdict is Verdict.FAIL:
        words += ": outside"
    return Outcome(verdict, words, relative, interval, needed, tuple(verdict_of(interval, bound) for bound in BOUNDS))


def _spread(pairs: Sequence[Pair]) -> float | None:
    """Return the standard deviation of the metric's difference, at least the metric's resolution; ``None``: unknown.

    An accuracy over 360 images moves in steps of 1/360, so that differences of 0 only mean "less than a step". The
    smallest step observed between any two runs is the lower bound.
    """
    if len(pairs) < 2:
        return None
    metrics = sorted({run.metric for pair in pairs for run in (pair.baseline, pair.target)})
    if len(metrics) < 2:
        return None
    resolution = min(b - a for a, b in pairwise(metrics))
    return max(stdev(pair.difference for pair in pairs), resolution)


def _needed(relative: float, spread: float, tolerance: float, seeds: int) -> int | None:
    """Return how many seeds would decide, given the observed difference and spread."""
    margin = abs(tolerance - relative)
    if not margin:
        return None
    count = max(seeds + 1, math.ceil(min((Z_DECIDES * spread / margin) ** 2, 1e12)))
    # Student's factor depends on the number of seeds; it matters for small numbers only.
    while count < _FEW and ((Z * t_factor(count) + Z_DECIDES - Z) * spread / margin) ** 2 > count:
        count += 1
    return whole_samples(count, seeds)


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"
