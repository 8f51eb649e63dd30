"""Timesteps and positions become sines in float32 for any storage: an angle of 999 is too coarse in float16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from engine.backends import HostSession
from engine.sdaa import float16_storage

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\ng '
STEPS = np.array([257, 513, 999], np.int64)
RATES = np.array([1.0, 0.1, 0.0123, 0.00071], np.float32)
WEIGHTS = "<float[4] r = {1.0, 0.1, 0.0123, 0.00071}, int64[1] l = {1}>"


def on_card(text: str, *inputs: np.ndarray) -> np.ndarray:
    model = float16_storage(onnx.parser.parse_model(HEAD + text))
    return np.asarray(HostSession(model).run(list(inputs))[0])


@pytest.mark.parametrize("wave", ["Sin", "Cos"])
def test_timestep_waves_match_float32(wave: str) -> None:
    nodes = f"{{ f = Cast<to=1>(s) u = Unsqueeze(f, l) a = Mul(u, r) y = {wave}(a) }}"
    found = on_card(f"(int64[N] s) => (float[N,4] y) {WEIGHTS} {nodes}", STEPS)
    wanted = getattr(np, wave.lower())(STEPS[:, None] * RATES)
    assert np.abs(found - wanted).max() < 1e-3  # was 0.2
    assert found.dtype == np.float16


def test_nodes_after_the_waves_are_stored_in_float16() -> None:
    nodes = "{ f = Cast<to=1>(s) u = Unsqueeze(f, l) a = Mul(u, r) w = Sin(a) y = Mul(w, r) }"
    found = on_card(f"(int64[N] s) => (float[N,4] y) {WEIGHTS} {nodes}", STEPS)
    wave = np.sin(STEPS[:, None] * RATES).astype(np.float16).astype(np.float32)
    assert np.array_equal(found, (wave * RATES.astype(np.float16).astype(np.float32)).astype(np.float16))


def test_waves_of_other_floats_are_rounded_to_float16() -> None:
    x = np.array([[257.3, 513.7, 999.9, 3.3]], np.float16)
    found = on_card(f"(float[N,4] x) => (float[N,4] y) {WEIGHTS} {{ a = Mul(x, r) y = Sin(a) }}", x)
    angles = (x.astype(np.float32) * RATES.astype(np.float16).astype(np.float32)).astype(np.float16)
    wanted = np.sin(angles.astype(np.float32)).astype(np.float16)
    assert np.array_equal(found, wanted)
