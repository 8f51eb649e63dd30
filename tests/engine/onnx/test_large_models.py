"""Models beyond 2 GB: how large a message is, and what happens where one cannot hold a model.

The limit is lowered here; ``test_beyond_two_gigabytes.py`` is about the real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from lookup_models import lookup_model
from onnx import TensorProto, helper, numpy_helper

from engine import EngineSpec, ModelError, open_engine
from engine.backends.ort import HostSession
from engine.onnx import external_names, file_hash, infer_shapes, large, load_model, model_content, save_model, shapes
from engine.onnx.large import APART, fits_message, lift_constants, message_bytes, split_large_weights

ROWS, WIDTH = 600, 64
LOWERED = 30_000
"""Below the table of bytes, 38400, and above all else."""


def table(kind: Any = np.float32) -> np.ndarray:
    return (np.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) % 251).astype(kind)


def model(kind: Any = np.float32, held: str = "initializer", raw: bool = True) -> onnx.ModelProto:
    values = table(kind)
    tensor = numpy_helper.from_array(values, "table")
    if not raw:
        tensor = helper.make_tensor("table", tensor.data_type, values.shape, values.ravel().tolist())
    return lookup_model(tensor, held)


def add_branches(made: onnx.ModelProto) -> None:
    """Add an If, each of whose branches holds a table."""
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(table()))],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    made.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=body, else_branch=body))


INDEX = np.array([0, 599, 7, 250])
KINDS = [np.float32, np.float16, np.float64, np.int8, np.int64, np.uint8]


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "MOST_MESSAGE", LOWERED)
    monkeypatch.setattr(large, "APART", 2**12)
    monkeypatch.setattr(shapes, "_MOST_SIZES", 2**12)
    serialise = onnx.ModelProto.SerializeToString

    def refuse(self: onnx.ModelProto, **options: Any) -> bytes:
        content = serialise(self, **options)
        assert len(content) <= LOWERED
        return content

    assert APART > 2**12
    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", refuse, raising=False)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("held", ["initializer", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_size_of_a_message_is_estimated_from_above(kind: Any, held: str, raw: bool) -> None:
    made = model(kind, held, raw)
    size = len(made.SerializeToString())
    assert size <= message_bytes(made) <= 11 * size
    assert not raw or message_bytes(made) < size + 4096
    assert fits_message(made)


def test_bodies_and_sparse_weights_count() -> None:
    made = model()
    add_branches(made)
    values = helper.make_tensor("v", TensorProto.FLOAT, [9], range(9))
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("n", TensorProto.INT64, [9], range(9)), [20])
    made.graph.sparse_initializer.append(sparse)
    assert 3 * table().nbytes < len(made.SerializeToString()) <= message_bytes(made)


def test_external_weights_are_not_part_of_the_message() -> None:
    light, apart = split_large_weights(model())
    assert list(apart) == ["table"]
    assert message_bytes(light) < 4096


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_saved_in_two_files_and_read_again(kind: Any, raw: bool, tmp_path: Path) -> None:
    made = model(kind, raw=raw)
    save_model(made, tmp_path / "m.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert (tmp_path / "m.onnx").stat().st_size < 4096
    assert external_names(tmp_path / "m.onnx") == ["m.onnx.data"]
    before = file_hash(tmp_path / "m.onnx"), model_content(tmp_path / "m.onnx").sha256
    again = load_model(tmp_path / "m.onnx")
    held = next(tensor for tensor in again.graph.initializer if tensor.name == "table")
    np.testing.assert_array_equal(numpy_helper.to_array(held), table(kind))
    np.testing.assert_array_equal(numpy_helper.to_array(made.graph.initializer[-1]), table(kind))  # unchanged
    with (tmp_path / "m.onnx.data").open("r+b") as file:
        file.seek(4000)
        file.write(b"\xff")
    assert file_hash(tmp_path / "m.onnx") != before[0]


@pytest.mark.usefixtures("lowered")
def test_failed_saving_keeps_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(model(), tmp_path / "m.onnx")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = model(np.int8)
    monkeypatch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    monkeypatch.setattr(large, "MOST_MESSAGE", 10_000)
    with pytest.raises(OSError, match="no space"):
        save_model(other, tmp_path / "m.onnx")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("held", ["initializer", "node"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_of_a_model_in_memory(kind: Any, held: str) -> None:
    made = lift_constants(model(kind, held), "m.onnx")
    assert [node.op_type for node in made.graph.node] == ["Gather", "Cast", "MatMul"]
    infer_shapes(made)
    (y,) = HostSession(made).run([INDEX])
    np.testing.assert_array_equal(y, table(kind)[INDEX, :4].astype(np.float32))


@pytest.mark.usefixtures("lowered")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("sharded", [False, True])
def test_the_card_computes_it(dtype: str, sharded: bool, tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m.onnx")
    spec = EngineSpec(ckpt=tmp_path / "m.onnx", batch_size=4, dtype=dtype, shard_tables=sharded)
    with open_engine("sdaa", spec) as engine:
        np.testing.assert_array_equal(engine(INDEX), table()[INDEX, :4])


@pytest.mark.usefixtures("lowered")
def test_functions_are_inlined(tmp_path: Path) -> None:
    made = model()
    doubled = helper.make_function(
        "own", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    made.functions.append(doubled)
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.graph.node[-1].output[0] = "h"
    made.graph.node.append(helper.make_node("Double", ["h"], ["y"], domain="own"))
    save_model(made, tmp_path / "m.onnx")
    with open_engine("sdaa", EngineSpec(ckpt=tmp_path / "m.onnx", batch_size=4)) as engine:
        np.testing.assert_array_equal(engine(INDEX), 2 * table()[INDEX, :4])


@pytest.mark.usefixtures("lowered")
def test_large_weights_inside_bodies_are_rejected() -> None:
    made = model()
    add_branches(made)
    with pytest.raises(ModelError, match="initializers"):
        lift_constants(made, "m.onnx")


@pytest.mark.usefixtures("lowered")
def test_saving_a_large_engine_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine import ConfigError
    from engine.sdaa import saved

    monkeypatch.setattr(saved, "MAX_MODEL", LOWERED)
    save_model(model(), tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match="most"):
        open_engine("sdaa", EngineSpec(ckpt=tmp_path / "m.onnx", batch_size=4, dtype="float32", save_engine=True))
