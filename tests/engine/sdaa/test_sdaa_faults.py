"""Fault injection end to end: an evaluation on a card that loses SPA gives the same results."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from support import SaveOnnx

from engine import ConfigError, EngineSpec, open_engine
from engine.sdaa.engine import SdaaEngine
from engine.sdaa.faults import Fault
from tecoinfer_modelzoo.errors import DeviceError, DeviceOutOfMemory

Array = np.ndarray[Any, np.dtype[Any]]

MODEL = """g (float[N,6] x) => (float[N,3] y)
<float[6,3] w={1,-2,3,4,-5,6,7,-8,9,1,-2,3,4,-5,6,7,-8,9}, float[3] b={1,2,3}> {
    a = MatMul(x, w)
    c = Add(a, b)
    y = Sigmoid(c)
}"""
TOTAL = 40
X = np.random.default_rng(0).standard_normal((TOTAL, 6)).astype(np.float16)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{MODEL}'), path)
    return path


def opened(path: Path, *faults: Fault, **options: Any) -> SdaaEngine:
    return SdaaEngine(EngineSpec(path, 8, **options), faults=faults)


@cache
def whole(path: Path) -> Array:
    with opened(path) as engine:
        result = engine(X)
    assert isinstance(result, np.ndarray)
    return result


def evaluated(engine: SdaaEngine, start: int, sizes: list[int], queued: bool, resumes: list[int]) -> list[Array]:
    """Run the samples from ``start`` in batches; return what came back until the card gave up and said where."""
    parts: list[Any] = []
    while start < TOTAL:
        size = sizes[len(parts) % len(sizes)]
        batch = X[start : start + size]
        try:
            parts.append(engine.run_async(batch).result() if queued else engine(batch))
        except DeviceError as error:
            resumes.append(int(str(error).partition("resume at sample ")[2]))
            break
        start += size
    return parts


faults = st.builds(
    Fault, st.sampled_from(["lose", "hang", "slow"]), st.integers(0, 3), st.integers(0, 8), st.sampled_from([1.0, 3.0])
)


@pytest.mark.slow
@example([Fault("lose", 0, 1)], [1], True)  # the second call is over when the first one is
@given(st.lists(faults, max_size=8), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.booleans())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_faults_do_not_change_the_result(path: Path, injected: list[Fault], sizes: list[int], queued: bool) -> None:
    resumes: list[int] = []
    with warnings.catch_warnings(record=True) as caught, opened(path, *injected) as engine:
        warnings.simplefilter("always")
        parts = evaluated(engine, 0, sizes, queued, resumes)
        done = sum(map(len, parts))
        report = engine.device_report()
        shards = sum(-(-len(part) // engine.shard_size) for part in parts)
        assert sum(spa.shards for spa in engine.card.spas) == shards
    assert [str(one.message) for one in caught] == report["events"]
    assert len([event for event in report["events"] if "SLOW" not in event]) == 4 - report["healthy"]
    assert report["spas"] == 4
    if done < TOTAL:
        assert (report["healthy"], resumes) == (0, [done])
        with opened(path) as fresh:  # a new card goes on where the old one stopped
            parts += evaluated(fresh, resumes[0], sizes, queued, [])
    np.testing.assert_array_equal(np.concatenate(parts), whole(path))


def test_the_run_continues_at_reduced_width(path: Path) -> None:
    with opened(path, Fault("lose", 2, 1), Fault("hang", 0, 2)) as engine:
        assert engine.device_report()["healthy"] == 4
        engine(X[:8])
        with pytest.warns(UserWarning, match="DEVICE_LOST in step 1"):
            engine(X[:8])
        with pytest.warns(UserWarning, match="HEARTBEAT_ERROR in step 2"):
            engine(X[:8])
        assert [spa.index for spa in engine.card.healthy] == [1, 3]
        engine(X[:8])
        latencies = [call.latency for call in engine.calls]
        assert latencies[0] < latencies[3] < latencies[2]  # two shards a SPA; and the heartbeat
        assert latencies[2] > engine.description.heartbeat_ms * 1e-3
        assert engine.events == engine.device_report()["events"]
        assert len(engine.events) == 2


def test_a_slow_spa_slows_the_card(path: Path) -> None:
    with opened(path, Fault("slow", 1, 1, 4.0)) as engine:
        engine(X[:8])
        with pytest.warns(UserWarning, match=r"SPA 1.*SLOW.*step 1"):
            engine(X[:8])
        first, second = engine.calls
        assert len(engine.device_report()["events"]) == 1
    assert second.latency == pytest.approx(4 * first.latency)
    assert second.compute == pytest.approx(4 * first.compute)


def test_faults_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_FAULTS", "oom:spa=1,step=0; nan:spa=0,step=1")
    with open_engine("sdaa", EngineSpec(path, 8)) as engine:
        with pytest.raises(DeviceOutOfMemory, match=r"SPA 1 .*memory.*step 0"):
            engine(X[:8])
        y = engine(X[:8])
        assert isinstance(y, np.ndarray)
        assert np.isnan(y[:2]).all()
        np.testing.assert_array_equal(y[2:], whole(path)[2:8])
    monkeypatch.setenv("TECO_SIM_FAULTS", "lose:spa=4,step=0")
    with pytest.raises(ConfigError, match=r"SPA 4 .*\(0 to 3\)"):
        open_engine("sdaa", EngineSpec(path, 8))
    with pytest.raises(ConfigError, match=r"SPA 1 .*\(0 to 0\)"):
        opened(path, Fault("lose", 1, 0), divided=False)


@pytest.mark.filterwarnings("ignore:SPA 1 .* SLOW")
def test_simulated_figures_do_not_depend_on_computing(path: Path) -> None:
    calls = []
    for simulate_only in (False, True):
        with opened(path, Fault("slow", 1, 1, 4.0), simulate_only=simulate_only) as engine:
            for future in [engine.run_async(X[:n]) for n in (8, 3, 20)]:
                future.result()
            engine(X[:8])
            calls.append(list(engine.calls))
            assert engine.device_report()["simulated_sps"] == pytest.approx(39 / engine.calls[-1].completed)
    assert calls[0] == calls[1]


def test_queued_calls_overlap(save_onnx: SaveOnnx, path: Path) -> None:
    with opened(path, simulate_only=True) as engine:
        engine(X[:8])
        alone = engine.calls[-1]
        for future in [engine.run_async(X[:8]) for _ in range(20)]:
            future.result()
        ends = [call.completed for call in engine.calls]
    period = (ends[-1] - ends[-10]) / 9
    assert period == pytest.approx(max(alone.copy_in, alone.compute, alone.copy_out))
    assert alone.latency == pytest.approx(alone.copy_in + alone.compute + alone.copy_out)
    assert ends == sorted(ends)
