"""Tables whose rows lie on several SPA: the answers are those of one SPA, the memory is a part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from engine.registry import open_engine
from engine.sdaa.card import CARDS
from engine.sdaa.sharded_tables import ShardedTables
from engine.spec import EngineSpec
from tecoinfer_modelzoo.errors import ConfigError, DeviceError, DeviceOutOfMemory, EngineError

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, WIDTH = 1003, 8
"""Rows that no number of SPA divides."""

HEAD = '<ir_version: 9, opset_import: ["": 18]>'
GRAPH = """
lookups (int64[N,3] ids, float[N,8] dense) => (float[N,8] y, float[N,8] raw) {
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  two = Constant<value = int64 {2}>()
  a_ids = Gather<axis = 1>(ids, zero)
  b_ids = Gather<axis = 1>(ids, one)
  c_ids = Gather<axis = 1>(ids, two)
  crossed = Add(a_ids, c_ids)
  rows_a = Gather(a, a_ids)
  rows_b = Gather(b, b_ids)
  rows_c = Gather(a, crossed)
  raw = Gather(c, c_ids)
  left = Mul(rows_a, rows_b)
  sum = Add(left, rows_c)
  far = Add(sum, dense)
  most = Tanh(far)
  y = Add(most, raw)
}
"""


def saved(folder: Path, text: str = GRAPH, **tables: tuple[int, int]) -> Path:
    model = parser.parse_model(f"{HEAD}\n{text}")
    chance = np.random.default_rng(0)
    for name, shape in (tables or {"a": (ROWS, WIDTH), "b": (ROWS, WIDTH), "c": (ROWS, WIDTH)}).items():
        values = chance.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "lookups.onnx")
    return folder / "lookups.onnx"


def inputs(count: int, seed: int = 0) -> list[Array]:
    chance = np.random.default_rng(seed)
    return [chance.integers(0, ROWS // 2, (count, 3)), chance.normal(size=(count, WIDTH)).astype(np.float32)]


def called(engine: Any, arrays: list[Array]) -> Any:
    """Call an engine with arrays in the dtypes that it takes."""
    return engine([array.astype(one.dtype) for array, one in zip(arrays, engine.inputs, strict=True)])


def opened(path: Path, shard: bool = True, **options: Any) -> Any:
    return open_engine("sdaa", EngineSpec(path, **{"batch_size": 8, "shard_tables": shard, **options}))


@pytest.mark.parametrize("spas", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_answers_are_those_of_whole_tables(
    spas: int, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", str(spas))
    path = saved(tmp_path)
    with opened(path, dtype=dtype) as split, opened(path, False, dtype=dtype) as whole:
        assert isinstance(split, ShardedTables)
        assert split.tables == ["a", "b", "c"]
        assert [one.name for one in split.inputs] == ["ids", "dense"]
        assert f"rows of 3 tables split over {spas} SPA" in split.describe()
        for count in (8, 1, 21):
            for ours, theirs in zip(called(split, inputs(count)), called(whole, inputs(count)), strict=True):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)


def test_every_row_is_found_and_others_are_errors(tmp_path: Path) -> None:
    every = np.arange(-ROWS, ROWS)
    ids = np.stack([np.zeros_like(every), every, np.zeros_like(every)], 1)
    dense = np.zeros((len(every), WIDTH), np.float32)
    path = saved(tmp_path)
    with opened(path, batch_size=256) as split, opened(path, False, batch_size=256) as whole:
        np.testing.assert_array_equal(called(split, [ids, dense])[0], called(whole, [ids, dense])[0])
        for beyond in (ROWS, -ROWS - 1):
            wrong = ids.copy()
            wrong[3, 1] = beyond
            with pytest.raises(EngineError, match="out of data bounds"):
                called(split, [wrong, dense])


def test_memory_time_and_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, a=(40_000, WIDTH), b=(40_000, WIDTH), c=(40_000, WIDTH))
    text = (CARDS / "t1.yaml").read_text(encoding="utf-8").replace("value: 15296", "value: 1")
    (tmp_path / "card.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("TECO_SIM_CARD", str(tmp_path / "card.yaml"))
    with pytest.raises(DeviceOutOfMemory, match=r"4 SPA .*--shard_tables"):
        opened(path, False)
    with opened(path) as engine:
        size = 3 * 40_000 * WIDTH * 2
        assert size / 4 < engine.card.memory < 0.4 * size
        called(engine, inputs(8))
        report = engine.device_report()
        assert report["memory_per_spa"] == engine.card.memory
        assert report["split_tables"] == ["a", "b", "c"]
        assert report["simulated_latency"] == pytest.approx(engine.card.elapsed)
        assert min(engine.device_seconds()) > 0
    saved(tmp_path, a=(99_000, WIDTH), b=(99_000, WIDTH), c=(9, WIDTH))
    with pytest.raises(DeviceOutOfMemory, match=r"4 SPA,.*2 MB,.*1 MB;.*--dtype"):
        opened(path, dtype="float32")


def test_the_rows_of_a_lost_spa_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_FAULTS", "lose:spa=2,step=1")
    with opened(saved(tmp_path)) as engine:
        called(engine, inputs(8))
        with (
            pytest.warns(UserWarning, match=r"SPA 2.*DEVICE_LOST in step 1;.*tables"),
            pytest.raises(DeviceError, match=r"SPA 2 DEVICE_LOST.*sample 8"),
        ):
            called(engine, inputs(8))


def test_small_tables_and_those_with_other_readers_stay_whole(tmp_path: Path) -> None:
    tied = GRAPH.replace("y = Add(most, raw)", "all = Add(most, least)\n  y = Add(all, raw)")
    tied = tied.replace("zero =", "least = ReduceMin<keepdims = 0>(b)\n  zero =")
    path = saved(tmp_path, tied, a=(ROWS * 200, WIDTH), b=(ROWS, WIDTH), c=(ROWS, WIDTH))
    with opened(path) as split, opened(path, False) as whole:
        assert split.tables == ["a"]
        np.testing.assert_array_equal(called(split, inputs(5))[0], called(whole, inputs(5))[0])


@pytest.mark.parametrize(
    ("change", "options", "why"),
    [
        (("[N,", "[4,"), {}, "its batch is fixed"),
        (("ids, float[N,8] dense", "ids, float[N,L] dense"), {}, "a dimension other than the batch is dynamic"),
        (("", ""), {"save_engine": True}, "a saved engine cannot hold them"),
        (("", ""), {"dims": {"L": (4,)}}, "cannot be combined with --dim"),
    ],
)
def test_models_that_cannot_be_split_are_refused(
    change: tuple[str, str], options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why):
        opened(saved(tmp_path, GRAPH.replace(*change)), **options)


def test_a_model_without_a_table(tmp_path: Path) -> None:
    path = saved(tmp_path, a=(3, WIDTH), b=(2, WIDTH), c=(1, WIDTH))
    with pytest.raises(ConfigError, match=r"no table to split; .*--shard_tables"):
        opened(path)
