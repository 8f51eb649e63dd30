from __future__ import annotations

from pathlib import Path

import pytest
from support import SaveOnnx

SLOW = """
slow (float[N, 4] x) => (float[N, 4] y)
<int64 count = {100000}, bool go = {1}> {
    y = Loop (count, go, x) <body = step (int64 i, bool more, float[N, 4] before) => (bool again, float[N, 4] after) {
        again = Identity (more)
        half = Mul (before, before)
        after = Sqrt (half)
    }>
}
"""
"""A loop of about a tenth of a second, with independent rows."""


@pytest.fixture
def slow_model(save_onnx: SaveOnnx) -> Path:
    return save_onnx(SLOW, "slow.onnx")
