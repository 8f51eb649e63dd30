"""Overflow that gives a wrong metric without an error is pointed out: equal outputs, and outputs at float16's end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support import SaveOnnx

from engine import EngineSpec
from utils.pipeline.run.saturation import FEWEST, LARGEST, OutputWatch


def watch(dtype: str = "float16") -> OutputWatch:
    return OutputWatch({"model": SimpleNamespace(dtype=dtype, spec=EngineSpec("net.onnx"))})  # type: ignore[arg-type]


def seen(*batches: Any, dtype: str = "float16") -> list[str]:
    found = watch(dtype)
    for batch in batches:
        found.see(batch, len(batch[0] if isinstance(batch, list) else batch))
    return found.hints()


def test_equal_outputs_of_all_samples_are_reported() -> None:
    rows = np.full((FEWEST // 2, 3), 0.25, np.float16)
    (hint,) = seen(rows, rows)
    assert "teco overflow net.onnx" in hint
    assert f"all {FEWEST} samples" in hint


@pytest.mark.parametrize(
    "batches",
    [
        [np.ones((FEWEST - 1, 3), np.float16)],  # too few
        [np.ones((FEWEST, 3), np.float16), np.zeros((1, 3), np.float16)],  # one differs
        [[np.ones((FEWEST, 3), np.float16), np.arange(FEWEST, dtype=np.float16)]],  # one output differs
        [np.ones((FEWEST, 3), np.int64)],  # labels
        [np.ones((FEWEST, 3), np.float16), np.ones((FEWEST, 4), np.float16)],  # of other shapes
    ],
    ids=["few", "one", "output", "labels", "shapes"],
)
def test_other_outputs_are_not(batches: list[Any]) -> None:
    assert seen(*batches) == []


@pytest.mark.parametrize("value", [LARGEST, np.inf])
def test_samples_at_the_end_of_float16_are_counted(value: float) -> None:
    rows = np.arange(12, dtype=np.float16).reshape(4, 3)
    rows[1, 2] = rows[3, 0] = value
    (hint,) = seen(rows)
    assert hint.startswith("2 of 4 samples")
    assert "teco overflow net.onnx" in hint


def test_masks_are_not_an_overflow() -> None:
    assert seen(np.array([[1, -np.inf], [2, -LARGEST]], np.float16)) == []


def test_other_precisions_are_not_looked_at() -> None:
    assert seen(np.full((64, 3), np.inf, np.float32), dtype="float32") == []
    assert OutputWatch({}).hints() == []


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 2**31))
def test_only_equal_rows_are_constant(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 2, (size, 2)).astype(np.float16) for size in sizes]
    whole = np.concatenate(rows)
    constant = len(whole) >= FEWEST and bool((whole == whole[0]).all())
    assert bool(seen(*rows)) == constant


def test_a_run_reports_it(save_onnx: SaveOnnx, tmp_path: Any) -> None:
    """A norm over squares overflows in float16 storage, and its answers become equal."""
    from toolkit.api import evaluate
    from utils.tasks.arrays.task import Arrays

    path = save_onnx(
        "g (float[N,4] x) => (float[N,4] y) <float big = {1000.0}>"
        "{ scaled = Mul(x, big)  square = Mul(scaled, scaled)  bent = Reciprocal(square)  y = Mul(bent, bent) }"
    )
    x = np.random.default_rng(0).uniform(1, 2, (16, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=(1 / (x * 1000) ** 2) ** 2)
    report = evaluate(Arrays, ckpt=path, data=tmp_path / "data.npz", target="sdaa", batch_size=4)
    assert any("teco overflow" in hint for hint in report.hints)
    exact = evaluate(Arrays, ckpt=path, data=tmp_path / "data.npz", target="sdaa", dtype="float32", batch_size=4)
    assert exact.hints == []
