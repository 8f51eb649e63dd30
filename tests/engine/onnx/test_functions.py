from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, strategies as st
from support import DIGITS, SaveOnnx

from engine import EngineSpec, open_engine
from engine.backends.ort import HostSession, refusal
from engine.onnx.functions import _has_functions, clashing
from engine.onnx.wire import BytesSource, FileSource

HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n'
CLASH = HEADER + (
    "g (float[2] x) => (float[2] y) { y = own.NAME(x) }\n"
    '<domain: "own", opset_import: ["" : 17]> NAME (a) => (b) { b = Neg(a) }'
)
SIZES = HEADER + (
    "g (float[2,3] x) => (float y) <int64[2] t={1,1}> { s = Shape(x)\n q = own.Sub(s, t)\n y = Expand(x, q) }\n"
    '<domain: "own", opset_import: ["" : 17]> Sub (a, b) => (c) { c = Max(a, b) }'
)


def text(name: str) -> str:
    return CLASH.replace("NAME", name)


@pytest.mark.parametrize("name", ["Add", "Div", "Gather", "Mul", "Sub", "Softmax", "Mine"])
def test_functions_with_any_name(name: str, save_onnx: SaveOnnx) -> None:
    path = save_onnx(text(name))
    x = np.ones((1, 2), np.float32)[0]
    for model in (path, path.read_bytes(), onnx.load(path)):
        assert HostSession(model).run([x])[0].tolist() == [-1, -1]
    assert refusal(onnx.load(path)) == ""
    for target in ("onnx", "sdaa", "cpu"):
        with open_engine(target, EngineSpec(path, dtype="float32", divided=False)) as engine:
            assert np.asarray(engine([x])).tolist() == [-1, -1], target


def test_shapes_computed_by_a_function(save_onnx: SaveOnnx) -> None:
    assert HostSession(save_onnx(SIZES)).run([np.ones((2, 3), np.float32)])[0].shape == (2, 3)


def test_onnx_runtime_aborts(save_onnx: SaveOnnx) -> None:
    """When this fails, ONNX Runtime is fixed, and ``engine/onnx/functions.py`` can be removed."""
    code = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
    ended = subprocess.run([sys.executable, "-c", code, str(save_onnx(text("Add")))], capture_output=True, check=False)
    assert ended.returncode < 0  # a signal


def test_other_models_are_unchanged(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    assert clashing(save_onnx(text("Mine"))) is None
    assert clashing(save_onnx(text("Add"))) is not None
    assert clashing(DIGITS / "digits.onnx") is None
    assert clashing(tmp_path) is None
    assert clashing(tmp_path / "nothing.onnx") is None


def test_truncated_models_are_left_to_the_runtime(save_onnx: SaveOnnx) -> None:
    whole = save_onnx(text("Add")).read_bytes()
    for size in range(len(whole)):
        assert clashing(whole[:size]) is None or size > len(whole) // 2


@given(st.binary(max_size=64), st.integers(0, 200), st.binary(max_size=4))
def test_any_bytes_can_be_read(junk: bytes, at: int, put: bytes) -> None:
    model = onnx.parser.parse_model(text("Add")).SerializeToString()
    for data in (junk, model[:at] + put + model[at + len(put) :], model[:at] + junk):
        assert _has_functions(BytesSource(data), len(data)) in (True, False)


class CountingSource(BytesSource):
    count = 0

    def read(self, start: int, count: int) -> bytes:
        found = super().read(start, count)
        self.count += len(found)
        return found


@pytest.mark.parametrize("junk", [b"\xff" * 10**6, b"\x00" * 10**6, b"\x08\x00" * 10**6, b"\x0a\xff\xff\xff\xff\x7f"])
def test_invalid_models_are_not_read_completely(junk: bytes) -> None:
    source = CountingSource(junk)
    assert not _has_functions(source, len(junk))
    assert source.count < 250_000


def test_weights_are_skipped_by_their_length(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:  # a graph of 3 GiB in a sparse file, and then a function
        file.write(b"\x08\x08\x3a" + b"\x80\x80\x80\x80\x0c")
        file.seek(3 * 2**30, os.SEEK_CUR)
        file.write(b"\xca\x01\x00")
    with path.open("rb") as file:
        assert _has_functions(FileSource(file.fileno()), path.stat().st_size)
