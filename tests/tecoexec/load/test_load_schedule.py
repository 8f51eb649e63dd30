from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tecoexec.load.latency import differences, queries_of, spread
from tecoexec.load.schedule import scheduled_times, server_schedule
from tecoexec.load.settings import SEED, LoadSettings
from tecoexec.load.sut import Sample, Served

SERVER = LoadSettings("Server", False, 100.0, 0.01, 1.0, 1, None, 0.0, 1, Path("logs"))


def test_the_schedule_is_exponential_with_the_rate() -> None:
    gaps = np.diff(server_schedule(3, 250.0, 50_000))
    assert gaps.mean() == pytest.approx(1 / 250, rel=0.02)
    assert gaps.std() == pytest.approx(1 / 250, rel=0.02)
    assert server_schedule(3, 250.0, 1).tolist() == [0.0]
    np.testing.assert_allclose(server_schedule(3, 500.0, 9) * 2, server_schedule(3, 250.0, 9))


def test_the_start_is_the_latest_possible_one() -> None:
    due = server_schedule(SEED, 100.0, 200)
    delays = np.random.default_rng(1).exponential(0.004, 200)
    delays[17] = 0.0
    np.testing.assert_allclose(scheduled_times(50.0 + due + delays, SEED, 100.0), 50.0 + due)
    assert len(scheduled_times(np.empty(0), SEED, 100.0)) == 0


def test_a_query_ends_with_its_last_sample() -> None:
    settings = LoadSettings("MultiStream", False, None, None, 1.0, 1, None, 0.0, 1, Path("logs"))
    samples = [Sample(10 + i, i, 0, 1.0) for i in range(4)]
    served = [Served(tuple(samples[2:]), 3.0, 4.0, 4.5, 4.75), Served(tuple(samples[:2]), 1.0, 2.0, 2.5, 2.75)]
    queries = queries_of(served, settings, "6.0.17")
    assert (queries.due.tolist(), queries.completed.tolist(), queries.answered.tolist()) == ([1.0], [4.5], [4.75])


def test_every_sample_of_offline_counts() -> None:
    settings = LoadSettings("Offline", False, None, None, 1.0, 1, None, 0.0, 1, Path("logs"))
    served = [Served((Sample(7, 0, 0, 1.0),), 1.0, 2.0, 2.5, 3.0), Served((Sample(8, 1, 0, 1.0),), 2.5, 3.0, 3.5, 4.0)]
    assert queries_of(served, settings, "6").latency.tolist() == [1.5, 2.5]


def test_another_version_of_loadgen_has_an_unknown_schedule() -> None:
    served = [Served((Sample(i, 0, i, float(i)),), i, i + 0.5, i + 0.5, i + 0.5) for i in range(3)]
    assert queries_of(served, SERVER, "7.0").latency.tolist() == [0.5] * 3
    known = queries_of(served, SERVER, "6.1").latency
    assert known.max() > 0.5


def test_percentiles_are_those_of_loadgen() -> None:
    found = spread(np.arange(50.0))
    assert (found["percentile_50"], found["percentile_90"], found["percentile_99"]) == (25, 45, 49)
    assert (found["min"], found["max"], found["mean"]) == (0, 49, 24.5)
    other = {**found, "percentile_50": 20.0, "percentile_90": 0.0}
    assert differences(found, other)["percentile_50"] == pytest.approx(0.25)
    assert "percentile_90" not in differences(found, other)
