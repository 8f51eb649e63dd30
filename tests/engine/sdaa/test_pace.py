from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS

from engine import ConfigError, EngineError, EngineSpec, open_engine
from engine.sdaa.card import load_card
from engine.sdaa.cost import ShardCost
from engine.sdaa.device import Card
from engine.sdaa.faults import Fault
from engine.sdaa.pace import Pace

COST = ShardCost(2.0, 5.0, 1.0, 100, 20, 3, (), ())
SHORT = ShardCost(0.0, 0.05, 0.0, 100, 20, 3, (), ())

Array = np.ndarray[Any, np.dtype[Any]]


class Wall:
    """A wall clock that only sleeping and :meth:`pass_by` advance."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def card(wall: Wall, *faults: Fault, spas: int = 4, cost: ShardCost = COST) -> Card:
    pace = Pace(lambda: wall.now, wall.sleep)
    return Card(load_card(), range(spas), cost, lambda arrays: list(arrays), faults, pace=pace)


def shards(count: int) -> list[list[Array]]:
    return [[np.zeros(1, np.float32)] for _ in range(count)]


def test_a_call_sleeps_until_its_simulated_end() -> None:
    wall = Wall()
    ours = card(wall)
    for number in range(1, 4):
        _, call = ours.run(shards(4))
        assert call.latency == 8.0
        assert wall.now == 100.0 + 8.0 * number == 100.0 + call.completed


def test_the_simulated_clock_goes_on_between_calls() -> None:
    wall = Wall()
    ours = card(wall)
    ours.run(shards(4))
    wall.now += 30.0
    _, call = ours.run(shards(4))
    assert (call.submitted, call.completed, wall.now) == (38.0, 46.0, 146.0)


def test_time_that_the_host_computes_counts() -> None:
    wall = Wall()

    def compute(arrays: Any) -> list[Array]:
        wall.now += 3.0
        return list(arrays)

    ours = Card(load_card(), range(1), COST, compute, pace=Pace(lambda: wall.now, wall.sleep))
    ours.run(shards(1))
    assert wall.slept == [5.0]
    assert ours.pace is not None
    assert ours.pace.report() == {"calls": 1, "late_calls": 0, "longest_delay_s": 0.0}
    ours.run(shards(3))  # the host computes 9 s for what takes the card 18
    assert (wall.now, ours.pace.late) == (126.0, 0)


def test_a_host_that_is_too_slow_is_reported_and_not_hidden() -> None:
    wall = Wall()

    def compute(arrays: Any) -> list[Array]:
        wall.now += 20.0
        return list(arrays)

    ours = Card(load_card(), range(1), COST, compute, pace=Pace(lambda: wall.now, wall.sleep))
    _, call = ours.run(shards(1))
    assert call.completed == 8.0
    assert wall.slept == []
    assert ours.pace is not None
    assert ours.pace.report() == {"calls": 1, "late_calls": 1, "longest_delay_s": 12.0}


def test_shards_go_to_the_spa_that_is_free_first() -> None:
    wall = Wall()
    ours = card(wall, spas=2)
    ours.pace = Pace(lambda: wall.now, lambda _: wall.__setattr__("now", 1e9))  # calls return at once
    ends = []
    for _ in range(4):
        wall.now = 100.0
        ends.append(ours.run(shards(1))[1].completed)
    assert ends == [8.0, 8.0, 13.0, 13.0]  # copies of the next call overlap with computing
    assert [spa.shards for spa in ours.spas] == [2, 2]


def test_faults_take_their_time() -> None:
    wall = Wall()
    ours = card(wall, Fault("slow", 0, 0, factor=2.0))
    with pytest.warns(UserWarning, match="SLOW"):
        ours.run(shards(4))
    assert wall.now == 116.0
    heartbeat = load_card().heartbeat_ms * 1e-3
    wall = Wall()
    ours = card(wall, Fault("hang", 1, 0))
    with pytest.warns(UserWarning, match="HEARTBEAT"):
        ours.run(shards(2))
    assert wall.now >= 100.0 + heartbeat + 8.0


@pytest.mark.long  # the calls overlap only if no thread is suspended for the 50 ms of a call
@pytest.mark.slow
def test_calls_of_several_threads_wait_side_by_side() -> None:
    ours = Card(load_card(), range(4), SHORT, lambda arrays: list(arrays), pace=Pace())
    barrier = threading.Barrier(4)

    def call(_: int) -> tuple[float, float]:
        barrier.wait()
        start = time.perf_counter()
        _, times = ours.run(shards(1))
        return time.perf_counter() - start, times.latency

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(call, range(4)))
    assert [spa.shards for spa in ours.spas] == [1, 1, 1, 1]
    assert all(latency == pytest.approx(0.05) for _, latency in results)  # none waited for another one's SPA
    assert all(wall >= 0.05 for wall, _ in results)


def spec(**how: Any) -> EngineSpec:
    return EngineSpec(DIGITS / "digits_dyn.onnx", batch_size=16, input_size=((4, 3, 32, 32),), dtype="float32", **how)


def test_an_engine_takes_at_least_its_simulated_time() -> None:
    images = np.zeros((16, 3, 32, 32), np.float32)
    with open_engine("sdaa", spec(paced=True)) as engine:
        engine(images)
        start = time.perf_counter()
        for _ in range(5):
            engine(images)
        wall = time.perf_counter() - start
        calls = list(engine.calls)[1:]  # type: ignore[attr-defined]
        assert wall >= sum(call.latency for call in calls)
        assert engine.device_report()["paced"]["calls"] == 6
        assert engine.streams == 4
        assert "paced" in engine.describe()


def test_values_and_costs_are_those_of_the_card_as_it_is() -> None:
    images = np.random.default_rng(3).random((16, 3, 32, 32), np.float32)
    found = []
    for paced in (False, True):
        with open_engine("sdaa", spec(paced=paced)) as engine:
            found.append((engine(images), engine.calls[-1].latency))  # type: ignore[attr-defined]
            assert ("paced" in engine.device_report()) is paced
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1])


def test_queued_calls_return_their_own_results() -> None:
    images = np.random.default_rng(3).random((8, 16, 3, 32, 32), np.float32)
    with open_engine("sdaa", spec(paced=True)) as engine:
        waiting = [engine.run_async(one) for one in images]
        results = [one.result() for one in waiting]
        for one, result in zip(images, results, strict=True):
            np.testing.assert_array_equal(engine(one), result)


@pytest.mark.parametrize(("text", "paced"), [("1", True), ("0", False), ("", False)])
def test_the_variable_paces_every_card(text: str, paced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_PACED", text)
    with open_engine("sdaa", spec()) as engine:
        assert engine.paced is paced  # type: ignore[attr-defined]


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_PACED", "yes")
    with pytest.raises(ConfigError, match=r"TECO_SIM_PACED='yes' must be 0 or 1"):
        open_engine("sdaa", spec())


def test_cancel_ends_the_wait(tmp_path: Path) -> None:
    pace = Pace()
    start = pace.now(0.0)
    threading.Timer(0.05, pace.cancel).start()
    with pytest.raises(EngineError, match="cancelled"):
        pace.wait(start + 3600.0)
