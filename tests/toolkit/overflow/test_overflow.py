"""``teco overflow``: planted values are counted by sample, and errors are one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import DIGITS, SaveOnnx

from engine import ConfigError
from toolkit.cli import execute
from toolkit.fix.records import Feed
from toolkit.overflow import NodeRange, find_overflow

SQUARES = """g (float[N,4] x) => (float[N,4] y, float[N,4] tiny)
{ square = Mul(x, x)  y = Sqrt(square)  tiny = Mul(square, small) }"""


def ranges(path: Path, x: np.ndarray, batch: int = 2) -> dict[str, NodeRange]:
    """Return the range of each tensor over the rows of ``x``, in parts of ``batch`` samples."""
    parts = [
        Feed([x[i : i + batch]], None, [f"s{j}" for j in range(i, min(i + batch, len(x)))])
        for i in range(0, len(x), batch)
    ]
    return {one.node.outputs[0]: one for one in find_overflow(path, parts, batch)}


@pytest.fixture
def squares(save_onnx: SaveOnnx) -> Path:
    return save_onnx(SQUARES.replace("\n{", "\n<float small = {0.0001}>\n{"))


def test_every_kind_is_counted_with_first_sample(squares: Path) -> None:
    x = np.array([[1, 2, 3, 4], [1, 1, 300, 1], [256, 1, 255.999, 0.001], [400, 1, 1, 1], [0.5, 0, 1, 1e-4]])
    found = ranges(squares, x.astype(np.float32))
    square = found["square"]
    # 256 * 256 is 65536 and becomes Inf; 255.999 is stored as 256. 1e-6 is below the smallest normal number, 1e-8 is 0.
    assert {kind: count for kind, count in square.counts.items() if count} == {
        "beyond": 4, "below": 2, "inf": 4, "flushed": 1}  # fmt: skip
    assert square.triggers == {"beyond": "s1", "inf": "s1", "below": "s2", "flushed": "s4"}
    assert (square.trigger, square.elements, square.overflows) == ("s1", 20, True)
    assert (square.largest, square.smallest) == (160000, pytest.approx(1e-8))
    assert not found["y"].overflows
    assert found["y"].inherited
    assert found["tiny"].counts["flushed"] == 2  # 1e-10 and 1e-12
    assert found["tiny"].counts["inf"] == 4


def test_value_saturates(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,1] x) => (float[N,1] y) { y = Add(x, x) }")
    (one,) = ranges(path, np.array([[32755.0], [3.0]], np.float32)).values()  # 32755 is stored as 32752
    assert (one.counts["beyond"], one.counts["saturated"], one.trigger, one.overflows) == (1, 1, "s0", True)


def test_limits_are_in_range(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,1] x) => (float[N,1] y) { y = Add(x, x) }")
    x = np.array([[32752], [2**-15], [0], [3e38], [np.nan], [1]], np.float32)  # 65504, 2 ** -14, 0, Inf, NaN and 2
    (one,) = ranges(path, x).values()
    assert {kind: count for kind, count in one.counts.items() if count} == {"beyond": 1}  # Inf in float32
    assert (one.largest, one.smallest, one.overflows) == (65504, 2**-14, False)


def test_nan_is_an_overflow(save_onnx: SaveOnnx) -> None:
    """Rounded factors make the difference negative, and its root NaN."""
    path = save_onnx(
        "g (float[N,2] x) => (float[N,2] y) <float[2] third = {0.3334, 0.3334}, float[1] top = {100.021}>"
        "{ m = Mul(x, third)  d = Sub(top, m)  y = Sqrt(d) }"
    )
    found = ranges(path, np.float32([[1, 1], [300, 300]]))
    assert {name: one.counts["nan"] for name, one in found.items()} == {"m": 0, "d": 0, "y": 2}
    assert (found["y"].overflows, found["y"].trigger, found["d"].overflows) == (True, "s1", False)


def test_flushed_share_is_reported(squares: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=np.float32([[1, 1, 1, 1], [1e-2, 1, 1, 1e-3]]))
    assert execute(["overflow", str(squares), "--data", str(tmp_path / "d.npz")]) == 0
    assert "values become 0 in 1 nodes, the largest share in Mul_2: 25.00%" in capsys.readouterr().out


def test_weights_beyond_float16_overflow(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,2] x) => (float[N,2] y) <float[2] w = {1e6, 1}, float[2] v = {1e-6, 1}> "
                     "{ z = Mul(x, w)  y = Mul(z, v) }")  # fmt: skip
    found = ranges(path, np.ones((2, 2), np.float32))
    assert found["z"].overflows


def test_input_without_batch_axis(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx("g (float[N,3] x, float[3] by) => (float[N,3] y) { y = Mul(x, by) }")
    assert execute(["overflow", str(path), "--batch_size", "8", "--json", str(tmp_path / "o.json")]) == 0
    assert json.loads((tmp_path / "o.json").read_text())["rows"][0]["elements"] == 24


def test_shape_flag(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path = save_onnx("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    with pytest.raises(ConfigError, match="pass one: --dim x=8x3x224x224"):
        execute(["overflow", str(path)])
    out = tmp_path / "o.json"
    assert execute(["overflow", str(path), "--shape", "x=2,3,5,7", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["rows"][0]["elements"] == 2 * 3 * 5 * 7
    words = [str(path), "--data", str(DIGITS / "data" / "val"), "--samples", "4", "--shape", "x=1,3,16,12"]
    assert execute(["overflow", *words, "--json", str(out)]) == 0  # images, cut to that size
    assert json.loads(out.read_text())["rows"][0]["elements"] == 4 * 3 * 16 * 12
    assert execute(["fix", *words, "--metric", "close", "--tolerance", "0.01", "--out", str(tmp_path)]) == 0
    with pytest.raises(ConfigError, match=r"no input .*: x"):
        execute(["overflow", str(path), "--shape", "z=2,3,5,7"])
    assert execute(["overflow", str(path), "--dim", "H=5", "--dim", "W=7", "--json", str(out)]) == 0
    assert json.loads(out.read_text())["rows"][0]["elements"] == 8 * 3 * 5 * 7
    with pytest.raises(ConfigError, match=r"--dim x=8x3x5x224, .*--dim W=224"):
        execute(["overflow", str(path), "--dim", "H=5"])
    with pytest.raises(ConfigError, match=r"no dimension 'T'; .*: H, N, W"):
        execute(["overflow", str(path), "--dim", "T=5"])


def test_sample_names_with_batch_axis_1(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[time,batch,2] x) => (float[time,batch,2] y) { square = Mul(x, x)  y = Sqrt(square) }")
    x = np.ones((3, 4, 2), np.float32)
    x[1, 2] = 300
    names = [f"s{i}" for i in range(4)]
    parts = [Feed([x[:, i : i + 2]], None, names[i : i + 2]) for i in (0, 2)]
    found = {one.node.outputs[0]: one for one in find_overflow(path, parts, 2)}
    assert (found["square"].triggers["inf"], found["square"].elements) == ("s2", 24)


def test_calls_of_several_shapes(save_onnx: SaveOnnx) -> None:
    path = save_onnx("g (float[N,T] x) => (float[N,T] y) { square = Mul(x, x)  y = Sqrt(square) }")
    parts = [Feed([np.full((2, size), 100.0 * size, np.float32)], None, [f"{size}a", f"{size}b"]) for size in (2, 3, 4)]
    found = {one.node.outputs[0]: one for one in find_overflow(path, parts, 2)}
    assert (found["square"].triggers["inf"], found["square"].elements) == ("3a", 18)
    many = [Feed([np.ones((1, size), np.float32)], None, ["s"]) for size in range(1, 19)]
    with pytest.raises(ConfigError, match=r"16 shapes.*\(1, 17\).*--dim"):
        find_overflow(path, many, 1)


def test_exit_code_and_files(squares: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=np.float32([[1, 1, 1, 1], [500, 1, 1, 1]]))
    files = {form: tmp_path / f"o.{form}" for form in ("json", "csv", "html")}
    words = [word for form, file in files.items() for word in (f"--{form}", str(file))]
    assert execute(["overflow", str(squares), "--data", str(tmp_path / "d.npz"), *words]) == 1
    assert "1 of 3 nodes overflow float16; the first is Mul_0 (Mul), sample d.npz[1]" in capsys.readouterr().out
    assert json.loads(files["json"].read_text())["rows"][0]["triggers"]["inf"] == "d.npz[1]"
    assert "d.npz[1]" in files["csv"].read_text()
    assert "<svg" in files["html"].read_text()
    (tmp_path / "p.py").write_text('skip_ops = ["Mul_0", "Sqrt_1", "Mul_2"]\n')
    words = ["overflow", str(squares), "--data", str(tmp_path / "d.npz"), "--pass_path", str(tmp_path / "p.py")]
    assert execute(words) == 0  # what is not stored in float16 is only predicted to overflow
    assert execute(["overflow", str(squares), "--samples", "1", "--data", str(tmp_path / "d.npz")]) == 0
