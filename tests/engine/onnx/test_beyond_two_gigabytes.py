"""A model with a weight of more than 2 GiB in a sparse file: every target computes it within a memory limit.

Each case runs in its own process, which measures and releases its memory.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from lookup_models import lookup_model
from onnx import TensorProto
from support import RunPython

pytestmark = [pytest.mark.slow, pytest.mark.long]

WIDTH = 4096
GIB = 2**30
KINDS = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "float16": TensorProto.FLOAT16}


def make(folder: Path, kind: str, held: str = "initializer") -> tuple[Path, int]:
    """Write a table of slightly more than 2 GiB, zero except for three rows, and a small product of its lookup."""
    numpy_kind = np.dtype(kind)
    rows = 2 * GIB // (WIDTH * numpy_kind.itemsize) + 64
    with (folder / "big.data").open("wb") as file:
        file.truncate(rows * WIDTH * numpy_kind.itemsize)
        for row in (0, 5, rows - 1):
            file.seek(row * WIDTH * numpy_kind.itemsize)
            file.write(np.full(WIDTH, row % 7 + 1, numpy_kind).tobytes())
    assert (folder / "big.data").stat().st_blocks * 512 < GIB
    table = TensorProto(name="table", dims=[rows, WIDTH], data_type=KINDS[kind], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "big.data"), ("length", str(rows * WIDTH * numpy_kind.itemsize))):
        table.external_data.add(key=key, value=value)
    onnx.save(lookup_model(table, held), str(folder / "big.onnx"))
    return folder / "big.onnx", rows


CALL = """
import json, resource, sys
import numpy as np
from engine import EngineSpec, open_engine
path, target, dtype, sharded, rows = sys.argv[1:]
spec = EngineSpec(ckpt=path, batch_size=4, dtype=dtype or None, shard_tables=sharded == "sharded")
with open_engine(target, spec) as engine:
    y = engine(np.array([0, 5, int(rows) - 1, 7]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"y": np.asarray(y, float).tolist(), "peak": peak}))
"""


@pytest.mark.parametrize(
    ("target", "kind", "held", "dtype", "sharded", "most"),
    [
        ("onnx", "float32", "initializer", "", "", 3),
        ("onnx", "int8", "node", "", "", 6),
        ("cpu", "float32", "initializer", "", "", 12),
        ("sdaa", "float32", "initializer", "", "", 18),
        ("sdaa", "float16", "initializer", "", "", 18),
        ("sdaa", "int8", "node", "", "", 18),
        ("sdaa", "float32", "initializer", "float32", "", 18),
        ("sdaa", "float32", "initializer", "", "sharded", 18),
    ],
)
def test_targets_compute_it(
    target: str, kind: str, held: str, dtype: str, sharded: str, most: float, tmp_path: Path, run_python: RunPython
) -> None:
    path, rows = make(tmp_path, kind, held)
    result = run_python("-c", CALL, str(path), target, dtype, sharded, str(rows), limit=1800)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    want = np.array([1, 6, (rows - 1) % 7 + 1, 0.0])[:, None] * np.ones(4)
    np.testing.assert_array_equal(found["y"], want)
    assert found["peak"] < most * GIB


SAVE = """
import hashlib, json, resource, sys
from pathlib import Path
from engine.onnx import file_hash, load_model, model_content, save_model
source, target = map(Path, sys.argv[1:])
save_model(load_model(source), target)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"hash": file_hash(target), "content": model_content(target).sha256, "peak": peak}))
"""


def test_a_large_model_is_saved_in_two_files(tmp_path: Path, run_python: RunPython) -> None:
    path, rows = make(tmp_path, "float32")
    (tmp_path / "out").mkdir()
    saved = tmp_path / "out" / "saved.onnx"
    result = run_python("-c", SAVE, str(path), str(saved), limit=1800)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["peak"] < 8 * GIB
    data = saved.with_name("saved.onnx.data")
    assert data.stat().st_blocks * 512 < GIB  # zeros are not stored
    model = onnx.load(str(saved), load_external_data=False)
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    place = {entry.key: entry.value for entry in table.external_data}
    with data.open("rb") as file:
        file.seek(int(place["offset"]) + 4 * WIDTH * (rows - 1))
        np.testing.assert_array_equal(np.frombuffer(file.read(4 * WIDTH), np.float32), (rows - 1) % 7 + 1)
