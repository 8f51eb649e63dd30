"""Random samples: reproducible, in plausible ranges, and compared with the outputs of target onnx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from engine import ConfigError, DataError
from tecoinfer_modelzoo import evaluate, predict
from utils.tasks.arrays.random_samples import parse_ranges, random_samples
from utils.tasks.arrays.task import Arrays

INPUTS = {
    "ids": (onnx.TensorProto.INT64, ["N", 5]),
    "attention_mask": (onnx.TensorProto.INT64, ["N", 5]),
    "pixels": (onnx.TensorProto.UINT8, ["N", 40]),
    "flag": (onnx.TensorProto.BOOL, ["N"]),
    "level": (onnx.TensorProto.INT32, ["N", 30]),
    "x": (onnx.TensorProto.FLOAT, ["N", "time", 4]),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with an input of each kind, whose outputs are the inputs, and rows of a table for ``ids``."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["rows"])]
    nodes += [helper.make_node("Identity", [name], [f"{name}_out"]) for name in INPUTS]
    given = [helper.make_tensor_value_info(name, *kind) for name, kind in INPUTS.items()]
    ends = [helper.make_tensor_value_info(f"{name}_out", *kind) for name, kind in INPUTS.items()]
    ends.append(helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["N", 5, 2]))
    table = numpy_helper.from_array(np.zeros((7, 2), np.float32), "table")
    graph = helper.make_graph(nodes, "g", given, ends, [table])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def arrays(model: Path, **flags: Any) -> dict[str, np.ndarray]:
    """Return the outputs of all random samples by name, which are the inputs."""
    found = predict(Arrays, ckpt=model, **{"random": 50, "dim": ["time=3"], **flags})
    return {name: np.array([one.answer[f"{name}_out"] for one in found]) for name in INPUTS}


def test_ranges(model: Path) -> None:
    found = arrays(model)
    assert set(np.unique(found["ids"])) == set(range(7)), "the rows of the table"
    assert set(np.unique(found["attention_mask"])) == {1}
    assert found["pixels"].min() < 10
    assert found["pixels"].max() > 245
    assert set(np.unique(found["flag"])) == set(np.unique(found["level"])) == {0, 1}
    assert found["x"].shape == (50, 3, 4)
    assert abs(found["x"].mean()) < 0.2
    assert 0.8 < found["x"].std() < 1.2


def test_ranges_of_the_user(model: Path) -> None:
    found = arrays(model, random_range=["level=-3:5", "x=0:1e-1", "attention_mask=0:1"])
    assert set(np.unique(found["level"])) == set(range(-3, 6))
    assert 0 <= found["x"].min() < found["x"].max() <= 0.1
    assert set(np.unique(found["attention_mask"])) == {0, 1}


def test_a_sample_depends_on_the_seed_and_its_number_only(model: Path) -> None:
    first, again, more, other = (
        arrays(model, **flags) for flags in ({}, {"batch_size": 7}, {"random": 60}, {"seed": 1})
    )
    for name in INPUTS:
        np.testing.assert_array_equal(first[name], again[name])
        np.testing.assert_array_equal(first[name], more[name][:50])
    assert (first["x"] != other["x"]).all()
    np.testing.assert_array_equal(arrays(model, random=50, random_range=["ids=0:1"])["x"], first["x"])


def test_a_dynamic_dimension_needs_a_size(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"'x'.*--dim time=SIZE"):
        predict(Arrays, ckpt=model, random=2)


@pytest.mark.parametrize("words", [["level"], ["level=1"], ["level=5:1"], ["level=a:b"], ["level=1.2.3:4"]])
def test_wrong_ranges(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--random_range"):
        parse_ranges(words)


def test_range_of_an_unknown_input(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.*ids, attention_mask"):
        predict(Arrays, ckpt=model, random=2, dim=["time=3"], random_range=["nothing=0:1"])


def test_an_input_that_determines_a_size_needs_a_range(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[N,4] x, int64[1] k) => (float[N,K] y, int64[N,K] z) { y, z = TopK(x, k) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises(ConfigError, match=r"'k'.*--random_range k=LOW:HIGH"):
        predict(Arrays, ckpt=tmp_path / "m.onnx", random=2)


@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
def test_outputs_equal_those_of_the_baseline(target: str, model: Path) -> None:
    report = evaluate(Arrays, ckpt=model, random=20, dim=["time=3"], target=target, batch_size=8)
    assert (report.metric_name, report.metric, report.samples) == ("equal", 1, 20)


class Faulty(Arrays):
    """Computes a float output 10 % too large, as a faulty engine may."""

    def decode(self, outputs: Any, contexts: Any) -> Any:
        found = super().decode(outputs, contexts)
        return [{**one, "x_out": one["x_out"] * np.float32(1.1)} for one in found]


class OffByOne(Arrays):
    """Computes an integer output that is too large by one in the fifth sample of each batch."""

    def decode(self, outputs: Any, contexts: Any) -> Any:
        found = super().decode(outputs, contexts)
        return [{**one, "ids_out": one["ids_out"] + (place == 4)} for place, one in enumerate(found)]


def test_a_fault_of_any_output_is_seen(model: Path) -> None:
    flags: dict[str, Any] = {"ckpt": model, "random": 10, "dim": ["time=3"], "batch_size": 10}
    assert evaluate(Faulty, **flags).metric == 0
    assert evaluate(Faulty, **flags, tolerance=0.2).metric == 1
    assert evaluate(OffByOne, **flags, tolerance=0.2).metric == 0.9
    assert evaluate(Faulty, **flags, metric=["x_out=mae"]).metric == pytest.approx(0.08, abs=0.015)


def test_the_fingerprint_covers_samples_and_model(model: Path) -> None:
    def fingerprint(**flags: Any) -> str:
        from utils.pipeline.flags.options import options

        opt = options(None, Arrays, "valid", [], ckpt=model, target="onnx", dim=["time=3"], **{"random": 4, **flags})
        return random_samples(opt, wanted=True).fingerprint()

    first = fingerprint()
    assert fingerprint() == first
    assert len({first, fingerprint(random=5), fingerprint(seed=1)}) == 3
    changed = onnx.load(model)
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((7, 2), np.float32), "table"))
    onnx.save(changed, model)
    assert fingerprint() != first


def test_text_inputs_need_data(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]>\nm (string[N] x) => (string[N] y) { y = Identity(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    with pytest.raises((ConfigError, DataError), match="'x'"):
        predict(Arrays, ckpt=tmp_path / "m.onnx", random=2)
