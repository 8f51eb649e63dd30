from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError, DataError
from utils.datasets import ListDataset
from utils.metrics import RecordMetric, TopK
from utils.pipeline import Failure, evaluate
from utils.pipeline.launch import Part, in_order, merge
from utils.pipeline.launch.parts import hosts
from utils.pipeline.report.report import Report


def report(right: int, wrong: int, *, steps: int = 1, seconds: float = 1.0, **others: object) -> Report:
    metric = TopK()
    if right + wrong:
        metric.update(np.eye(2)[[0] * right + [1] * wrong], np.zeros(right + wrong, np.int64))
    made = Report(
        metric_name="top1",
        metric=metric.compute() if right + wrong else float("nan"),
        samples=right + wrong,
        steps=steps,
        e2e_time=seconds,
        avg_sps=(right + wrong) / seconds,
        avg_inference_time=0.1 * seconds,
        avg_preprocess_time=0.2,
        avg_postprocess=0.3,
        state=metric,
    )
    return replace(made, **others)


def parts(*reports: Report) -> list[Part]:
    return [Part(made, rank, len(reports), f"host{rank % 2}") for rank, made in enumerate(reports)]


@given(st.integers(1, 30), st.integers(1, 8))
def test_in_order_restores_the_order(samples: int, size: int) -> None:
    whole = list(range(samples))
    assert in_order([whole[rank::size] for rank in range(size)]) == whole


def test_in_order_keeps_false_values() -> None:
    assert in_order([[None, 0], [False]]) == [None, False, 0]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=6).filter(
        lambda c: sum(map(sum, c)) > 0
    )
)
def test_the_metric_is_over_all_samples(counts: list[tuple[int, int]]) -> None:
    merged = merge(parts(*(report(*count) for count in counts)))
    right, wrong = map(sum, zip(*counts, strict=True))
    assert (merged.metric, merged.samples) == (right / (right + wrong), right + wrong)
    assert (merged.processes, merged.recomputed) == (len(counts), 0)


def test_times_and_speeds() -> None:
    merged = merge(parts(report(4, 0, steps=1, seconds=2.0), report(6, 2, steps=3, seconds=4.0, wait_time=0.5)))
    assert (merged.e2e_time, merged.avg_sps, merged.steps) == (4.0, 3.0, 4)
    assert merged.avg_inference_time == pytest.approx((0.2 * 1 + 0.4 * 3) / 4)
    assert merged.wait_time == 0.5  # the slowest one's


def test_the_speed_excludes_warm_up() -> None:
    warmed = report(4, 0, seconds=2.0, avg_sps=1.0)  # 2 of 4 samples timed
    assert merge(parts(warmed, warmed)).avg_sps == 2.0


def test_merging_does_not_change_the_parts() -> None:
    both = parts(report(1, 0), report(0, 1))
    assert merge(both).metric == merge(both[::-1]).metric == 0.5
    assert both[0].report.state is not None
    assert both[0].report.state.compute() == 1.0


def test_failures_are_in_the_order_of_the_data_set() -> None:
    names = [[Failure("a", ""), Failure("c", "")], [Failure("b", "")]]
    merged = merge(
        parts(report(1, 0, failures=names[0], nan_inputs=["x"]), report(1, 0, failures=names[1], finished=False))
    )
    assert [failure.name for failure in merged.failures] == ["a", "b", "c"]
    assert (merged.nan_inputs, merged.finished) == (["x"], False)


def test_nan_and_resumed_steps_are_merged() -> None:
    first = report(3, 0, steps=2, resumed_steps=2, nan_outputs=["a", "c"], nan_inputs=["a"])
    merged = merge(parts(first, report(2, 0, steps=2, resumed_steps=1, seconds=9.0, nan_outputs=["b"])))
    assert (merged.nan_outputs, merged.nan_inputs, merged.sound) == (["a", "b", "c"], ["a"], False)
    assert merged.resumed_steps == 3


class Positives(RecordMetric):
    """Share of the positives that were found; there may be none."""

    name = "found"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> np.ndarray:
        return np.stack([np.asarray(targets), np.asarray(predictions)[:, 0] > 0], axis=1).astype(np.int64)

    def value(self, records: np.ndarray, weights: np.ndarray) -> float:
        positives = records[records[:, 0] > 0]
        if not len(positives):
            raise DataError("no positive in the data set")
        return float(positives[:, 1].mean())


def test_a_part_with_too_few_samples_for_the_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = [np.float32([value]) for value in (1, 2, -1, 3)], [1, 0, 1, 0]
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    made = []
    for rank in range(2):
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
        mine = ListDataset(rows[rank::2], labels[rank::2]).batches(1)
        made.append(evaluate(lambda arrays: arrays[0], mine, np.stack, np.asarray, Positives()))
    assert (made[0].metric, np.isnan(made[1].metric)) == (0.5, True)
    merged = merge(parts(*made))
    assert (merged.metric, merged.sound) == (0.5, True)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    with pytest.raises(DataError, match="no positive"):
        evaluate(lambda arrays: arrays[0], mine, np.stack, np.asarray, Positives())


def test_a_process_without_samples() -> None:
    merged = merge(parts(report(3, 1), report(0, 0, steps=0, seconds=0.001, failures=[Failure("f", "unreadable")])))
    assert (merged.metric, merged.samples, len(merged.failures)) == (0.75, 4, 1)


def test_no_process_has_a_sample() -> None:
    with pytest.raises(DataError, match="evaluated: f: unreadable"):
        merge(parts(report(0, 0, failures=[Failure("f", "unreadable")]), report(0, 0)))


def test_reports_of_simulated_cards_are_merged() -> None:
    card = {"card": "T1", "spas": 4, "healthy": 4, "memory_per_spa": 10, "simulated_latency": 0.1}
    first = report(1, 0, steps=1, device={**card, "simulated_sps": 100.0, "events": ["a"]})
    other = {**card, "healthy": 3, "simulated_latency": 0.2, "memory_per_spa": 12, "simulated_sps": 50.0, "events": []}
    device = merge(parts(first, report(1, 0, steps=3, device=other))).device
    assert device.pop("simulated_latency") == pytest.approx(0.175)
    assert device == {
        "card": "T1",
        "cards": 2,
        "spas": 8,
        "healthy": 7,
        "memory_per_spa": 12,
        "simulated_sps": 150.0,
        "events": ["a"],
    }


def test_a_card_with_other_keys() -> None:
    device = {"card": "other", "temperature": 40}
    assert merge(parts(report(1, 0, device=device), report(1, 0, device=device))).device == {**device, "cards": 2}


@pytest.mark.parametrize("ranks", [[], [0, 0], [1, 2], [0, 2]])
def test_incomplete_parts(ranks: list[int]) -> None:
    with pytest.raises(ConfigError, match="one per rank"):
        merge([Part(report(1, 0), rank, max(len(ranks), 1), "host") for rank in ranks])


def test_metrics_that_cannot_be_merged() -> None:
    with pytest.raises(ConfigError, match="cannot merge"):
        merge(parts(report(1, 0), report(1, 0, state=TopK(2))))
    with pytest.raises(ConfigError, match="without its metric's state"):
        merge(parts(report(1, 0), report(1, 0, state=None)))


def test_number_of_processes_and_machines() -> None:
    assert hosts(parts(report(1, 0))) == "1 processes on 1 machine"
    assert hosts(parts(report(1, 0), report(1, 0), report(1, 0))) == "3 processes on 2 machines"
