"""Verdicts of the training gate for given losses and metrics."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from engine import DataError
from model_config.results import Verdict
from toolkit.commands.train_gate import report
from toolkit.training.gate.judge import Outcome, Pair, judge, paired
from toolkit.training.gate.runs import Run

FALLING = (2.0, 1.5, 1.0, 0.7, 0.5)


def run(device: str, seed: int, metric: float, losses: Sequence[float] = FALLING) -> Run:
    return Run(device, seed, tuple(range(len(losses))), tuple(loss + seed for loss in losses), metric)


def pairs_of(baseline: Sequence[float], target: Sequence[float]) -> list[Pair]:
    """Return pairs of runs whose losses differ at step 3."""
    other = (*FALLING[:3], 0.75, 0.5)
    return [
        paired(run("cpu", seed, a), run("sdaa", seed, b, other))
        for seed, (a, b) in enumerate(zip(baseline, target, strict=True))
    ]


def judged(baseline: Sequence[float], target: Sequence[float], tolerance: float = 0.001) -> Outcome:
    return judge(pairs_of(baseline, target), tolerance)


def test_equal_losses_and_metrics_pass_with_one_seed() -> None:
    outcome = judge([paired(run("cpu", 0, 0.9), run("sdaa", 0, 0.9))])
    assert (outcome.verdict, outcome.interval, outcome.difference) == (Verdict.PASS, None, 0.0)
    assert outcome.reason.startswith("all 5 losses and the metrics of 1 seed ")


def test_the_first_differing_step_is_reported() -> None:
    [pair] = pairs_of([0.9], [0.9])
    assert (pair.parted, pair.same) == (3, False)
    assert pair.largest == pytest.approx(0.05 / 0.75)


@pytest.mark.parametrize(
    ("metrics", "step", "pointed"), [((0.9,), 0, True), ((0.9,), 1, False), ((0.80, 0.82, 0.81, 0.83), 0, False)]
)
def test_losses_that_differ_before_the_first_update_point_to_the_comparison_of_dumps(
    metrics: Sequence[float], step: int, pointed: bool
) -> None:
    losses = [*FALLING[:step], FALLING[step] * 1.01, *FALLING[step + 1 :]]
    pairs = [
        paired(run("cpu", seed, 0.9 + seed / 99), run("sdaa", seed, metric, losses))
        for seed, metric in enumerate(metrics)
    ]
    found = report("train.py", pairs, judge(pairs), 0.001)
    assert any("teco train compare" in note for note in found.notes) is pointed


def test_equal_losses_with_another_metric_do_not_pass() -> None:
    metrics = (0.90, 0.91, 0.92)
    pairs = [paired(run("cpu", seed, a), run("sdaa", seed, a - 0.1)) for seed, a in enumerate(metrics)]
    assert all(pair.parted is None and not pair.same for pair in pairs)
    assert judge(pairs).verdict is Verdict.FAIL


def test_a_metric_that_is_lower_for_every_seed_fails() -> None:
    outcome = judged([0.90, 0.91, 0.92, 0.93], [0.80, 0.82, 0.81, 0.83])
    assert outcome.verdict is Verdict.FAIL
    assert outcome.interval is not None
    assert outcome.interval[1] < -0.01
    assert outcome.bounds == (Verdict.FAIL, Verdict.FAIL)
    assert outcome.reason.endswith("tolerance 0.1 %: outside")


def test_a_better_metric_fails_too() -> None:
    assert judged([0.80, 0.82, 0.81, 0.83], [0.90, 0.91, 0.92, 0.93]).verdict is Verdict.FAIL


def test_small_differences_of_the_metric_pass() -> None:
    baseline = [0.9012, 0.9134, 0.9221, 0.9305, 0.9098, 0.9177]
    outcome = judged(baseline, [value + sign * 2e-5 for value, sign in zip(baseline, (1, -1) * 3, strict=True)])
    assert outcome.verdict is Verdict.PASS
    assert outcome.interval is not None
    assert -1e-4 < outcome.interval[0] < 0 < outcome.interval[1] < 1e-4


def test_the_reported_number_of_seeds_decides() -> None:
    draw = random.Random(0)
    baseline = [draw.gauss(0.9, 0.01) for _ in range(400)]
    moved = (0.004, -0.004, 0.003, -0.003, 0.0001)
    target = [value + moved[seed % 5] for seed, value in enumerate(baseline)]
    outcome = judged(baseline[:5], target[:5])
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.needed is not None
    assert 20 < outcome.needed <= 400
    assert f"{outcome.needed} seeds would decide" in outcome.reason
    assert judged(baseline[: outcome.needed], target[: outcome.needed]).verdict is Verdict.PASS


def test_one_seed_with_differing_losses_is_inconclusive() -> None:
    outcome = judged([0.9], [0.9])
    assert (outcome.verdict, outcome.interval) == (Verdict.INCONCLUSIVE, None)
    assert "one seed" in outcome.reason


def test_a_constant_metric_is_inconclusive() -> None:
    outcome = judged([1.0] * 5, [1.0] * 5)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert "the same in every run" in outcome.reason


def test_the_spread_is_at_least_the_resolution_of_the_metric() -> None:
    """360 images: the resolution is 0.28 %, so that three seeds do not prove 0.1 %."""
    values = [350 / 360, 351 / 360, 353 / 360]
    outcome = judged(values, values)
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert outcome.interval is not None
    assert outcome.interval[1] == pytest.approx(4.3027 / math.sqrt(3) / 360 / (sum(values) / 3), rel=1e-3)
    many = [(340 + seed % 9) / 360 for seed in range(100)]
    assert judged(many, many, 0.01).verdict is Verdict.PASS


def test_a_reference_of_0_has_no_relative_difference() -> None:
    outcome = judged([0.0, 0.0], [0.1, 0.2])
    assert (outcome.verdict, outcome.difference) == (Verdict.INCONCLUSIVE, None)


@pytest.mark.parametrize(
    ("losses", "metric", "reason"),
    [
        ((2.0, math.nan, 1.0, 0.7, 0.5), 0.9, "sdaa, seed 0: the loss of step 1 is nan"),
        ((2.0, 1.5, 1.0, 0.7, math.inf), 0.9, "sdaa, seed 0: the loss of step 4 is inf"),
        (FALLING, math.nan, "sdaa, seed 0: its metric is nan"),
        (FALLING[:4], 0.9, "sdaa, seed 0: it has 4 steps, and 5 on cpu"),
        ((2.0, 2.1, 2.5, 3.0, 4.0), 0.9, "sdaa, seed 0: it diverges: the loss begins at 2 and ends at 4 (0.5 on cpu)"),
    ],
)
def test_an_invalid_run_fails_regardless_of_its_metric(losses: tuple[float, ...], metric: float, reason: str) -> None:
    outcome = judge([paired(run("cpu", 0, 0.9), run("sdaa", 0, metric, losses))])
    assert (outcome.verdict, outcome.reason) == (Verdict.FAIL, reason)


def test_a_diverging_baseline_is_an_error() -> None:
    with pytest.raises(DataError, match=r"cpu, seed 0: .*1 .*nan"):
        paired(run("cpu", 0, 0.9, (2.0, math.nan)), run("sdaa", 0, 0.9, (2.0, 1.0)))
    with pytest.raises(DataError, match=r"cpu, seed 0: .*inf"):
        paired(run("cpu", 0, math.inf), run("sdaa", 0, 0.9))


def test_seeds_without_effect_are_an_error() -> None:
    runs = [Run(device, seed, (0, 1), (2.0, 1.0), 0.9) for seed in (0, 1) for device in ("cpu", "sdaa")]
    with pytest.raises(DataError, match=r"seeds 0 and 1 .*cpu"):
        judge([paired(*runs[:2]), paired(*runs[2:])])


@pytest.mark.parametrize("seeds", [2, 5, 12])
def test_wrong_verdicts_are_rare(seeds: int) -> None:
    """At a true difference equal to the tolerance, at most 2.5 % of all gates may return PASS, or FAIL."""
    draw, verdicts = random.Random(seeds), []
    for _ in range(400):
        baseline = [draw.gauss(0.9, 0.01) for _ in range(seeds)]
        verdicts.append(judged(baseline, [value + draw.gauss(0.009, 0.004) for value in baseline], 0.01).verdict)
    for verdict in (Verdict.PASS, Verdict.FAIL):
        assert verdicts.count(verdict) <= 0.025 * 400 + 2 * math.sqrt(0.025 * 400)
