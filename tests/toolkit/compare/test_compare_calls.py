"""Tests of comparing a model over several calls, such as the samples of a data set."""

from __future__ import annotations

import json
import sys
from math import inf, isnan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, SaveOnnx

from engine.measures import THRESHOLD
from toolkit.cli import main
from toolkit.compare.nodes import Row, RowSums, compare_calls, compare_nodes, row_of
from toolkit.compare.replay import Replay
from toolkit.graph.inputs import random_inputs
from toolkit.graph.nodes import Node
from toolkit.graph.trace import Traced, traced

DYN = DIGITS / "digits_dyn.onnx"
SHAPE = {"input": (1, 3, 32, 32)}
CALLS = [random_inputs(DYN, seed, shapes=SHAPE) for seed in range(3)]
NODE = Node(0, "n", "Relu", ("x",), ("y",), "")


def test_sums_run_over_all_calls() -> None:
    """The figures are those of the concatenated values, computed here by the formulas."""
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
        found = {row.tensor: row for row in compare_calls(a, b, CALLS).rows if row.accumulated}
        values = [[traced.run(inputs) for inputs in CALLS] for traced in (a, b)]
    assert len(found) == 14
    for name, row in found.items():
        wanted, value = (np.concatenate([one[name].ravel() for one in runs]).astype(np.float64) for runs in values)
        error, figures = np.abs(value - wanted), row.accumulated
        share = error / np.where(np.abs(wanted) > THRESHOLD["float16"], np.abs(wanted), 1)
        assert figures
        assert figures.diff1 == pytest.approx(error.sum() / np.abs(wanted).sum(), rel=1e-12)
        assert figures.diff2 == pytest.approx(sqrt((error**2).sum() / (wanted**2).sum()), rel=1e-12)
        assert figures.diff3_max == share.max()
        assert figures.diff3_mean == pytest.approx(share.mean(), rel=1e-12)
        norms = np.linalg.norm(value) * np.linalg.norm(wanted)
        assert figures.cosine == pytest.approx(np.dot(value, wanted) / norms, rel=1e-12)
        assert row.value_stats
        assert row.reference
        assert (row.value_stats.minimum, row.value_stats.maximum) == (value.min(), value.max())
        assert (row.reference.minimum, row.reference.maximum) == (wanted.min(), wanted.max())
        assert row.value_stats.flushed == np.count_nonzero((value == 0) & (wanted != 0))
        assert row.isolated


@pytest.mark.parametrize("memory", [2**30, 2**17])
def test_one_call_and_the_same_call_twice_agree(memory: int) -> None:
    """Also in several groups of nodes; every ratio of sums stays the same, and so does every range."""
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
        once = compare_nodes(a, b, CALLS[0], memory=memory)
        twice = compare_calls(a, b, [CALLS[0]] * 2, memory=memory)
    assert (memory < 2**20) == any("groups" in note for note in once.notes)
    assert len(once.rows) == len(twice.rows)
    for one, two in zip(once.rows, twice.rows, strict=True):
        assert (one.tensor, one.status, one.shape, one.fused) == (two.tensor, two.status, two.shape, two.fused)
        for first, second in ((one.accumulated, two.accumulated), (one.isolated, two.isolated)):
            assert (first is None) == (second is None)
            if first and second:
                assert second.diff2 == pytest.approx(first.diff2, rel=1e-12)
                assert second.diff3_max == first.diff3_max


def test_the_extension_and_numpy_give_the_same_report(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[Row]] = []
    for native in ("1", "0"):
        monkeypatch.setenv("TECO_NATIVE", native)
        with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
            found.append(compare_calls(a, b, CALLS[:2]).rows)
    for one, two in zip(*found, strict=True):
        assert one.value_stats == two.value_stats
        assert one.reference == two.reference
        if one.accumulated and two.accumulated:
            assert one.accumulated.diff2 == pytest.approx(two.accumulated.diff2, rel=1e-12)
            assert one.accumulated.diff3_mean == pytest.approx(two.accumulated.diff3_mean, rel=1e-12)


def test_models_are_opened_once_for_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for kind in (Replay, type(traced(DYN, "onnx", shapes=SHAPE))):

        def spy(self: Any, names: Any, real: Any = kind._open, name: str = kind.__name__) -> Any:  # type: ignore[attr-defined]
            opened.append(name)
            return real(self, names)

        monkeypatch.setattr(kind, "_open", spy)
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
        compare_calls(a, b, CALLS)
    assert sorted(opened) == ["Replay", "_GraphTraced", "_GraphTraced"]


def added(*calls: tuple[Any, Any, Any]) -> Row:
    sums = RowSums(NODE, "y", 1e-6)
    for value, reference, alone in calls:
        arrays = [None if one is None else np.array(one, np.float32) for one in (reference, value, alone)]
        sums.add("float32", *arrays, None)  # type: ignore[arg-type]
    return sums.row()


def test_one_call_that_cannot_be_compared_decides() -> None:
    good = ([1, 2], [1, 2], [1, 2])
    row = added(good, ([1, 2, 3], [1, 2], [1, 2]), good)
    assert row.status == "shape [3] is not the baseline's [2]"
    assert row.accumulated
    assert row.accumulated.diff2 == inf
    row = added(good, ([1, 2], [1, 2], [1]))
    assert row.status == "compared"
    assert (row.accumulated and row.accumulated.diff2, row.isolated and row.isolated.diff2) == (0, inf)
    row = added(good, ([1, np.nan], [1, 2], [1, 2]), good)
    assert row.accumulated
    assert row.value_stats
    assert (row.accumulated.mismatched, row.value_stats.nan, row.accumulated.diff2) == (1, 1, inf)
    assert isnan(row.accumulated.cosine)
    assert added().status == "not computed"
    texts = row_of(NODE, "y", "object", 1e-6, np.array(["a"]), np.array(["b"]))
    assert texts.status == "values are <U1, not numbers"


def test_masked_elements_are_found_per_call(save_onnx: SaveOnnx) -> None:
    """The mask of a call hides its own elements; a call without a mask has none."""
    path = save_onnx("net (float[2, 4] x) => (float[2, 4] y) { s = Identity(x) y = Softmax <axis = -1> (s) }")
    plain = np.arange(8, dtype=np.float32).reshape(2, 4)
    masked = plain.copy()
    masked[:, 3] = np.finfo(np.float32).min
    with traced(path, "onnx") as a, traced(path, "sdaa", dtype="float16") as b:
        rows = compare_calls(a, b, [[plain], [masked]]).rows
        alone = compare_nodes(a, b, [masked]).rows
    assert [row.masked for row in rows] == [row.masked for row in alone] == [2, 0]


@pytest.fixture
def teco(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs a command: exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["teco", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return int(stopped.value.code or 0), printed.out, printed.err

    return run


def test_command_compares_several_files_as_one(tmp_path: Path, teco: Any) -> None:
    files = [tmp_path / f"{place}.npz" for place in range(3)]
    for file, inputs in zip(files, CALLS, strict=True):
        np.savez(file, input=inputs[0])
    out = tmp_path / "out.json"
    assert teco("compare", DYN, "--data", *files, "--json", out)[0] == 0
    found = {row["tensor"]: row for row in json.loads(out.read_text())["rows"]}
    with traced(DYN, "onnx", shapes=SHAPE) as a, traced(DYN, "sdaa", shapes=SHAPE) as b:
        wanted = compare_calls(a, b, CALLS).rows
    for row in wanted:
        assert found[row.tensor].get("diff2") == (row.accumulated and row.accumulated.diff2)
    np.savez(files[1], input=np.zeros((2, 3, 32, 32), np.float32))
    code, _, err = teco("compare", DYN, "--data", *files)
    assert (code, err.count("\n")) == (2, 1)
    assert str(files[1]) in err
    assert "[2, 3, 32, 32]" in err
    assert teco("dump", "full", DYN, "--out", tmp_path / "dump")[0] == 0
    code, _, err = teco("compare", DYN, "--a", tmp_path / "dump", "--data", files[0], files[2])
    assert (code, err.count("\n")) == (2, 1)


def test_kept_session_serves_only_its_tensors() -> None:
    model: Traced
    with traced(DYN, "onnx", shapes=SHAPE) as model:
        names = list(model.origin)
        first = model.run(CALLS[0], names[:2], keep=True)
        second = model.run(CALLS[1], names[:2])
        others = model.run(CALLS[0], names[1:3], keep=True)
        every = model.run(CALLS[0])
    assert set(first) == set(second) == set(names[:2])
    assert set(others) == set(names[1:3])
    for name, value in (first | others).items():
        np.testing.assert_array_equal(value, every[name])
