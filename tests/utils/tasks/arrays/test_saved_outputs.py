"""``--save_predictions``: the file holds all outputs, whatever their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from engine import ConfigError
from utils.arrays import read_npz
from utils.datasets.base import Batch
from utils.pipeline import valid
from utils.tasks.arrays.task import Arrays
from utils.tasks.arrays.writing import OutputFile

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
m (float[N,3] x) => (float[N,3] file, float[N] total)
{
  file = Neg(x)
  axis = Constant<value_ints = [1]>()
  total = ReduceSum<keepdims = 0>(x, axis)
}
"""


def test_saved_outputs_are_those_of_the_model(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    np.savez(tmp_path / "v.npz", x=x, total=x.sum(axis=1))
    argv = ["--target", "onnx", "--save_predictions", str(tmp_path / "out.npz"), "--batch_size", "4"]
    assert valid.main(None, Arrays, argv=argv, ckpt=tmp_path / "m.onnx", data_path=tmp_path / "v.npz") == 0
    found = read_npz(tmp_path / "out.npz")
    np.testing.assert_array_equal(found["file"], -x)
    np.testing.assert_allclose(found["total"], x.sum(axis=1), rtol=1e-6)
    assert [Path(name).name for name in found["sample_names"]] == [f"v.npz[{place}]" for place in range(7)]


def test_outputs_of_different_shapes_are_refused(tmp_path: Path) -> None:
    writer = OutputFile(tmp_path / "out.npz")
    writer.see(Batch([0, 1], None, ["a", "b"]), [{"y": np.zeros(2)}, {"y": np.zeros(3)}])
    with pytest.raises(ConfigError, match="'y'"):
        writer.close()
    assert not (tmp_path / "out.npz").exists()
