"""Embedding tables on the card: found, measured, and refused before their data is read if they do not fit."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from engine.sdaa.card import CARDS
from engine.sdaa.engine import SdaaEngine
from engine.sdaa.tables import Table, tables_of
from engine.spec import EngineSpec
from tecoinfer_modelzoo.errors import DeviceOutOfMemory

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def lookups(rows: list[int], width: int, folder: Path, data: bool = True) -> Path:
    """Write a model that sums one row of each table; the tables' file is sparse, or missing."""
    nodes, tensors, offset = [], [], 0
    for i, count in enumerate(rows):
        tensor = TensorProto(name=f"table_{i}", dims=[count, width], data_type=FLOAT, data_location=1)
        size = count * width * 4
        for key, value in (("location", "tables.data"), ("offset", offset), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
        offset += size
        tensors.append(tensor)
        nodes.append(helper.make_node("Gather", [f"table_{i}", f"id_{i}"], [f"row_{i}"], name=f"look_{i}"))
    nodes.append(helper.make_node("Sum", [f"row_{i}" for i in range(len(rows))], ["y"], name="sum"))
    inputs = [helper.make_tensor_value_info(f"id_{i}", INT64, ["N"]) for i in range(len(rows))]
    output = helper.make_tensor_value_info("y", FLOAT, ["N", width])
    graph = helper.make_graph(nodes, "lookups", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (folder / "lookups.onnx").write_bytes(model.SerializeToString())
    if data:
        with (folder / "tables.data").open("wb") as file:
            file.truncate(offset)
    return folder / "lookups.onnx"


def small_card(folder: Path, megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (CARDS / "t1.yaml").read_text(encoding="utf-8").replace("value: 15296", f"value: {megabytes}")
    (folder / f"card_{megabytes}.yaml").write_text(text, encoding="utf-8")  # a description is read once
    monkeypatch.setenv("TECO_SIM_CARD", str(folder / f"card_{megabytes}.yaml"))


def model_of(*nodes: onnx.NodeProto, constants: dict[str, list[int]]) -> ModelProto:
    tensors = [TensorProto(name=name, dims=dims, data_type=FLOAT) for name, dims in constants.items()]
    return helper.make_model(helper.make_graph(nodes, "g", [], [], tensors))


def test_tables_are_constants_with_row_lookups() -> None:
    model = model_of(
        helper.make_node("Gather", ["a", "ids"], ["1"]),
        helper.make_node("Gather", ["b", "ids"], ["2"]),
        helper.make_node("Gather", ["columns", "ids"], ["3"], axis=1),
        helper.make_node("Gather", ["x", "ids"], ["4"]),
        helper.make_node("Gather", ["fixed", "b"], ["5"]),
        helper.make_node("Gather", ["row", "ids"], ["6"]),
        constants={"a": [10, 4], "b": [20, 2, 3], "columns": [5, 5], "fixed": [7, 7], "row": [9]},
    )
    assert tables_of(model, half=True) == [Table("b", 20, 6, 240), Table("a", 10, 4, 80)]
    assert [table.size for table in tables_of(model, half=False)] == [480, 160]


@pytest.mark.parametrize(("dtype", "need"), [("float16", 17090), ("float32", 34180)])
def test_tables_beyond_a_spa_are_refused_before_their_data_is_read(dtype: str, need: int, tmp_path: Path) -> None:
    path = lookups([40_000_000, 30_000_000, 1000], 128, tmp_path, data=False)  # 36 GB: too large to read
    with pytest.raises(DeviceOutOfMemory) as caught:
        SdaaEngine(EngineSpec(path, batch_size=8, dtype=dtype))
    said = str(caught.value)
    assert said.startswith(f"SPA 0 of TECO_AICARD_01: the tables need {need} MB, free are 15296 MB; too large at any")
    assert f"table_0 40000000 x 128 ({9766 if dtype == 'float16' else 19531} MB), table_1 30000000 x 128" in said
    assert "train smaller tables" in said
    assert "\n" not in said


def test_float16_is_advised_if_it_helps_and_small_tables_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lookups([4096] * 7, 64, tmp_path)
    small_card(tmp_path, 5, monkeypatch)
    with pytest.raises(DeviceOutOfMemory, match=r"table_3.*\(3 MB\);.*--dtype float16"):
        SdaaEngine(EngineSpec(path, batch_size=8, dtype="float32"))
    with SdaaEngine(EngineSpec(path, batch_size=8, dtype="float16")) as engine:
        assert engine.card.memory >= 7 * 4096 * 64 * 2


def test_tables_that_fit_only_without_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lookups([4096, 4096], 64, tmp_path)
    small_card(tmp_path, 1.1, monkeypatch)
    with pytest.raises(DeviceOutOfMemory, match=r"largest batch per SPA .*\d+$"):
        SdaaEngine(EngineSpec(path, batch_size=4000, dtype="float16"))


def test_weights_that_are_not_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constant = helper.make_tensor("w", FLOAT, [512, 512], bytes(512 * 512 * 4), raw=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", FLOAT, ["N", 512])],
        [helper.make_tensor_value_info("y", FLOAT, ["N", 512])],
        [constant],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    small_card(tmp_path, 0.7, monkeypatch)
    with pytest.raises(DeviceOutOfMemory, match=r"weights alone.*: use --dtype float16$"):
        SdaaEngine(EngineSpec(tmp_path / "m.onnx", batch_size=8, dtype="float32"))
    small_card(tmp_path, 0.3, monkeypatch)
    with pytest.raises(DeviceOutOfMemory, match=r"too large.*smaller model"):
        SdaaEngine(EngineSpec(tmp_path / "m.onnx", batch_size=8, dtype="float16"))
