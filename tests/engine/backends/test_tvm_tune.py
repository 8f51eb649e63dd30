"""Tiles measured for target tvm: what a kernel can have, the search, its cache, and failures of its process."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from support import SaveOnnx

from engine import ConfigError, EngineSpec, open_engine
from engine.backends import tvm_schedule, tvm_tune
from engine.backends.tvm_runtime import TARGET_VARIABLE, Compiler
from engine.backends.tvm_schedule import Tile
from engine.backends.tvm_tune import TUNE_VARIABLE, Tuner, trials
from tecoinfer_modelzoo.cache import read_entry, write_entry

needs_tvm = pytest.mark.skipif(find_spec("tvm") is None, reason="tvm is not installed")

ROWS, INNER, COLUMNS = 48, 24, 96


def product() -> Any:
    """Return a kernel: a matrix product and a maximum with 0."""
    from tvm import te, tirx

    a, b = te.placeholder((ROWS, INNER), name="a"), te.placeholder((INNER, COLUMNS), name="b")
    k = te.reduce_axis((0, INNER), name="k")
    c = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((ROWS, COLUMNS), lambda i, j: tirx.max(c[i, j], tirx.const(0, "float32")), name="d")
    return te.create_prim_func([a, b, d]).with_attr("global_symbol", "main")


def target() -> str:
    return Compiler().target


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Tile]:
    """Record every tile that a kernel of this process is given."""
    found: list[Tile] = []
    make = tvm_schedule._Kernel._make_tiles

    def recorded(self: Any, block: Any, loops: Any, tile: Tile, large: bool) -> None:
        found.append(tile)
        make(self, block, loops, tile, large)

    monkeypatch.setattr(tvm_schedule._Kernel, "_make_tiles", recorded)
    return found


@pytest.fixture
def other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the text of the program that is run as the process."""

    def run_instead(script: str) -> None:
        program = tmp_path / "program"
        program.write_text(script)
        program.chmod(0o755)
        monkeypatch.setattr(tvm_tune.sys, "executable", str(program))

    return run_instead


def layer(save_onnx: SaveOnnx) -> tuple[Path, np.ndarray]:
    """Write a model of one matrix product; return its path and its weights."""
    weights = np.random.default_rng(0).normal(size=(INNER, COLUMNS)).astype(np.float32)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]>\ng (float[n,{INNER}] x) => (float[n,{COLUMNS}] y) {{\n'
        "p = MatMul(x, w) y = Relu(p) }"
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return save_onnx(model), weights


def check(path: Path, weights: np.ndarray) -> None:
    x = np.random.default_rng(1).normal(size=(ROWS, INNER)).astype(np.float32)
    with open_engine("tvm", EngineSpec(path, batch_size=ROWS)) as engine:
        np.testing.assert_allclose(engine(x), np.maximum(x @ weights, 0), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ choices


@needs_tvm
def test_the_first_choice_is_the_own_tile() -> None:
    tiles, work = tvm_schedule.choices(product())
    assert work == ROWS * INNER * COLUMNS
    assert tiles[0] == Tile(32, 0, 12)
    assert len(set(tiles)) == len(tiles) > 100


@given(st.permutations("SSRR"), st.lists(st.integers(1, 200), min_size=4, max_size=4))
def test_choices_divide_the_axes_and_fit_the_registers(kinds: list[str], extents: list[int]) -> None:
    loops = tvm_schedule._Loops("".join(kinds), list(range(4)), extents, True)
    [first, last] = [i for i, kind in enumerate(kinds) if kind == "S"]
    term = max(i for i, kind in enumerate(kinds) if kind == "R")
    tiles = list(loops.choices())
    assert len(set(tiles)) == len(tiles)
    assert tiles or extents[last] > 128
    for tile in tiles:
        assert extents[last] % tile.width == extents[term] % tile.steps == 0
        assert (tile.axis, tile.height) == (-1, 1) or (tile.axis == first and extents[first] % tile.height == 0)
        assert tile.height * -(-tile.width // tvm_schedule.REGISTER) <= 32
        assert not tile.outer or (tile.width < extents[last] and extents[first] > 1)


@needs_tvm
@pytest.mark.parametrize(
    "tile", [None, Tile(32, 0, 12), Tile(96), Tile(12, 0, 3, 8), Tile(16, 0, 8, 2, True), Tile(4, -1, 1, 1, True)]
)
def test_every_tile_computes_the_same(tile: Tile | None) -> None:
    import tvm

    function = tvm_schedule.with_tile(product(), tile).with_attr("global_symbol", "main")
    library = tvm.compile(tvm.IRModule({"main": function}), target="llvm").jit()
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((ROWS, INNER), (INNER, COLUMNS)))
    tensors = [tvm.runtime.tensor(each) for each in (a, b, np.full((ROWS, COLUMNS), 7, np.float32))]
    library["main"](*tensors)
    np.testing.assert_allclose(tensors[-1].numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


def test_neighbours_differ_in_one_size() -> None:
    tile = Tile(32, 0, 4)
    assert tvm_tune._is_near(tile, Tile(16, 0, 4))
    assert tvm_tune._is_near(tile, Tile(32, 0, 4, 2))
    assert tvm_tune._is_near(tile, Tile(32, -1, 1))
    assert tvm_tune._is_near(Tile(32, 1, 6), tile)
    assert not tvm_tune._is_near(tile, tile)
    assert not tvm_tune._is_near(tile, Tile(16, 0, 2))
    assert not tvm_tune._is_near(tile, Tile(16, -1, 1))


# --------------------------------------------------------------------------------------------------------- the search


@needs_tvm
@pytest.mark.slow
@pytest.mark.long
def test_a_process_measures_and_refuses() -> None:
    question = {"kernel": product().script(), "target": target(), "threads": 1}
    with tvm_tune._Process() as process:
        tiles = process.ask({**question, "what": "choices"}, 100)["tiles"]
        assert [Tile(*tile) for tile in tiles] == tvm_schedule.choices(product())[0]
        assert 0 < process.ask({**question, "what": "time", "tile": tiles[3]}, 100)["seconds"] < 1
        assert process.ask({**question, "what": "time", "tile": [32, 9, 4, 1, False]}, 100).keys() == {"refused"}
        assert process.ask({**question, "kernel": "no kernel", "what": "choices"}, 100).keys() == {"refused"}
        assert process.lost == 0


@needs_tvm
@pytest.mark.slow
def test_a_tuned_plan_computes_the_same_and_is_opened_again_without_tuning(
    save_onnx: SaveOnnx, cache: Path, used: list[Tile], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []
    search = Tuner.tiles

    def recorded(self: Tuner, kernels: Any) -> dict[str, Tile]:
        searched.append(len(kernels))
        return search(self, kernels)

    monkeypatch.setattr(Tuner, "tiles", recorded)
    monkeypatch.setattr(tvm_tune, "GAIN", 1e9)  # the fastest tile, in any case
    monkeypatch.setenv(TUNE_VARIABLE, "3")
    path, weights = layer(save_onnx)
    check(path, weights)
    [entry] = (cache / "tvm_tiles").glob("*.json")
    found = read_entry("tvm_tiles", entry.stem)
    assert found is not None
    assert used == [Tile(*found["tile"])]
    assert found["trials"] == 3
    assert 0 < found["seconds"] <= found["own_seconds"]
    check(path, weights)  # the plan of the cache
    assert searched == [1]
    monkeypatch.setenv(TUNE_VARIABLE, "2")  # another plan, but its kernel was measured with more tiles
    monkeypatch.setattr(tvm_tune._Process, "ask", None)
    check(path, weights)
    assert searched == [1, 1]
    monkeypatch.delenv(TUNE_VARIABLE)  # a plan without tuning
    check(path, weights)
    assert searched == [1, 1]
    assert used == [Tile(*found["tile"])] * 2 + [Tile(32, 0, 12)]


@needs_tvm
def test_the_tile_of_the_cache_is_used(
    save_onnx: SaveOnnx, cache: Path, used: list[Tile], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    recall = tvm_tune.read_entry

    def recalled(kind: str, key: str) -> dict[str, Any] | None:
        keys.append(key)
        write_entry(kind, key, {"tile": [48, 0, 6, 2, True], "trials": 5})
        return recall(kind, key)

    monkeypatch.setattr(tvm_tune, "read_entry", recalled)
    monkeypatch.setenv(TUNE_VARIABLE, "5")
    path, weights = layer(save_onnx)
    check(path, weights)
    assert used == [Tile(48, 0, 6, 2, True)]
    assert len(keys) == 1


CHILD = f"""#!{sys.executable}
import json, os, signal, sys, time
SECONDS = {{16: 2.0, 32: 3.0, 48: 1.0, 64: 2.5}}
for line in sys.stdin:
    question = json.loads(line)
    if question["what"] == "choices":
        answer = {{"tiles": [[width, -1, 1, 1, False] for width in (32, 8, 16, 48, 64, 24, 96)]}}
    else:
        width = question["tile"][0]
        if width == 8:
            os.kill(os.getpid(), signal.SIGSEGV)
        if width == 96:
            time.sleep(600)
        answer = {{"seconds": SECONDS[width]}} if width in SECONDS else {{"refused": "other results"}}
    print(json.dumps(answer), flush=True)
"""


@pytest.mark.slow
def test_crashes_hangs_and_refusals_of_tiles_do_not_end_the_search(
    cache: Path, other_program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_program(CHILD)
    monkeypatch.setattr(tvm_tune, "LIMIT", 8.0)
    tuner = Tuner("{}", "1", 6, 1)
    assert tuner.tiles({"a": "kernel", "b": "kernel"}) == dict.fromkeys("ab", Tile(48))
    assert tuner.problem == ""
    [entry] = (cache / "tvm_tiles").glob("*.json")
    other_program("#!/bin/false\n")
    assert tuner.tiles({"c": "kernel"}) == {"c": Tile(48)}  # from the cache
    content = entry.read_text()
    for damaged in (content[:-9], content.replace("48", "47"), "{}"):
        entry.write_text(damaged)
        assert tuner.tiles({"c": "kernel"}) == {}
        assert tuner.problem == ""  # one process was lost
    entry.write_text(content)
    assert Tuner("{}", "1", 7, 1).tiles({"c": "kernel"}) == {}  # more tiles are asked for
    assert Tuner("{}", "1", 6, 2).tiles({"c": "kernel"}) == {}  # another number of threads


def test_a_slower_tile_is_not_chosen(cache: Path, other_program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slower = CHILD.replace("48: 1.0", "48: 3.0").replace("16: 2.0", "16: 2.95").replace("64: 2.5", "64: 3.5")
    other_program(slower.replace("time.sleep(600)", "sys.exit(3)"))
    assert Tuner("{}", "1", 6, 1).tiles({"a": "kernel"}) == {}
    [entry] = (cache / "tvm_tiles").glob("*.json")
    found = read_entry("tvm_tiles", entry.stem)
    assert found is not None
    assert found["tile"] is None


@needs_tvm
@pytest.mark.parametrize(("script", "named"), [("kill -SEGV $$\n", "signal 11"), ("exec sleep 600\n", "0.2 s")])
def test_a_process_that_never_answers_is_a_warning(
    script: str, named: str, save_onnx: SaveOnnx, cache: Path, other_program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_program(f"#!/bin/sh\n{script}")
    monkeypatch.setattr(tvm_tune, "MOST_LOST", 1)
    monkeypatch.setattr(tvm_tune, "LIMIT", 0.2 if "sleep" in script else 20.0)
    monkeypatch.setenv(TUNE_VARIABLE, "4")
    path, weights = layer(save_onnx)
    with pytest.warns(UserWarning, match=named) as warned:
        check(path, weights)
    assert all("\n" not in str(one.message) for one in warned)
    assert not list(cache.rglob("*.so"))  # the next time it is tried again
    assert not list(cache.rglob("tvm_tiles/*.json"))


# --------------------------------------------------------------------------------------------------------- the variable


@pytest.mark.parametrize("value", ["-1", "fast", "1.5", "9" * 12, "\u0663"])
def test_a_variable_that_is_no_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNE_VARIABLE, value)
    with pytest.raises(ConfigError, match=TUNE_VARIABLE) as refused:
        trials()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("value", "count"), [("", 0), ("0", 0), ("32", 32)])
def test_the_number_of_tiles(value: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNE_VARIABLE, value)
    assert trials() == count


@needs_tvm
def test_other_kinds_of_targets_are_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TUNE_VARIABLE, "1")
    monkeypatch.setattr("engine.backends.tvm_runtime._device", lambda *_: None)  # this host has no such device
    monkeypatch.setenv(TARGET_VARIABLE, "cuda")
    with pytest.raises(ConfigError, match=TUNE_VARIABLE) as refused:
        Compiler()
    assert "\n" not in str(refused.value)
