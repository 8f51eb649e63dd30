"""Plan files: the profile, the key, and every way in which a plan can be stale, without TensorRT."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.backends.trt_plan import (
    PlanKey,
    PlanRecord,
    bound_dims,
    is_whole,
    plan_path,
    profile_shapes,
    read_record,
    record_path,
    stale_reason,
    write_plan,
)
from engine.base import ConfigError, EngineSpec, ModelError, TensorSpec
from engine.signature import Dim

PLAN = bytes(range(256)) * 8
F32 = np.dtype(np.float32)
X = TensorSpec("x", F32, (None, 3, 8, 8))
KEY = PlanKey("a" * 64, "", {"x": [[1, 3, 8, 8], [16, 3, 8, 8], [16, 3, 8, 8]]}, "float16", "10.9.0", "NVIDIA H100")
RECORD = PlanRecord(
    key=KEY,
    plan_sha256=hashlib.sha256(PLAN).hexdigest(),
    inputs=[X, TensorSpec("ids", np.dtype(np.int64), (4,), None)],
    outputs=[TensorSpec("y", np.dtype(np.float16), (None, 10))],
    dims=[["N", 3, 8, 8], [4]],
    metadata={"labels": "零,一"},
)


def test_names() -> None:
    assert plan_path(Path("a/digits_dyn.onnx")) == Path("a/digits_dyn.engine")
    assert record_path(Path("a/digits_dyn.engine")) == Path("a/digits_dyn.engine.json")


@given(st.integers(1, 1024), st.lists(st.integers(1, 512), max_size=3))
def test_profile_spans_one_to_the_batch(batch: int, rest: list[int]) -> None:
    tensor = TensorSpec("x", F32, (None, *rest))
    assert profile_shapes([tensor], [["N", *rest]], batch) == {"x": [[1, *rest], [batch, *rest], [batch, *rest]]}


def test_profile_of_static_unbatched_and_bound_inputs() -> None:
    static = TensorSpec("static", F32, (16, 3))
    unbatched = TensorSpec("shared", F32, (5, 7), batch_axis=None)
    declared: list[list[Dim]] = [["N", 3, "H", "W"], [16, 3], ["K", 7]]
    assert profile_shapes([X, static, unbatched], declared, 4) == {
        "x": [[1, 3, 8, 8], [4, 3, 8, 8], [4, 3, 8, 8]],
        "shared": [[5, 7], [5, 7], [5, 7]],
    }


def test_dims_keep_only_the_batch_open() -> None:
    assert bound_dims([X], [["N", 3, "H", "W"]], EngineSpec(Path("m.onnx"))) == [["N", 3, 8, 8]]
    unbatched = TensorSpec("k", F32, (5,), batch_axis=None)
    assert bound_dims([unbatched], [["K"]], EngineSpec(Path("m.onnx"))) == [[5]]


@pytest.mark.parametrize(
    "tensor", [TensorSpec("x", F32, (None, 3, None, None)), TensorSpec("x", F32, (None,), batch_axis=None)]
)
def test_a_dynamic_dimension_without_a_size_is_refused(tensor: TensorSpec) -> None:
    with pytest.raises(ConfigError, match=r"m\.onnx: input 'x' has dynamic dimensions.*input_size"):
        bound_dims([tensor], [[None] * len(tensor.shape)], EngineSpec(Path("m.onnx")))


def test_a_fitting_plan_is_used() -> None:
    assert stale_reason(RECORD, KEY, PLAN) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_sha256", "b" * 64),
        ("pass_sha256", "c" * 64),
        ("input_shapes", {"x": [[1, 3, 8, 8], [32, 3, 8, 8], [32, 3, 8, 8]]}),
        ("precision", "float32"),
        ("tensorrt", "10.13.0"),
        ("gpu", "NVIDIA L4"),
        ("schema_version", 3),
    ],
)
def test_every_field_of_the_key_makes_a_plan_stale(field: str, value: object) -> None:
    reason = stale_reason(RECORD, replace(KEY, **{field: value}), PLAN)  # type: ignore[arg-type]
    assert reason is not None
    assert reason.startswith(f"{field} was ")
    assert repr(value) in reason


@given(st.integers(0, len(PLAN) - 1))
def test_a_plan_cut_anywhere_or_changed_by_one_byte_is_found(at: int) -> None:
    assert not is_whole(RECORD, PLAN[:at])
    changed = bytearray(PLAN)
    changed[at] ^= 1
    assert "truncated" in (stale_reason(RECORD, KEY, bytes(changed)) or "")


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "m.engine"
    write_plan(path, PLAN, RECORD)
    assert path.read_bytes() == PLAN
    assert read_record(path) == RECORD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.engine", "m.engine.json"]
    data = json.loads(record_path(path).read_text(encoding="utf-8"))
    wanted = {"model_sha256", "input_shapes", "precision", "tensorrt", "gpu", "plan_sha256", "schema_version"}
    assert wanted <= set(data)
    write_plan(path, b"newer", replace(RECORD, plan_sha256=hashlib.sha256(b"newer").hexdigest()))
    found = read_record(path)
    assert found is not None
    assert is_whole(found, path.read_bytes())


def test_a_failed_write_leaves_the_old_files(tmp_path: Path) -> None:
    path = tmp_path / "m.engine"
    write_plan(path, PLAN, RECORD)
    with pytest.raises(TypeError):
        write_plan(path, "not bytes", RECORD)  # type: ignore[arg-type]
    assert path.read_bytes() == PLAN
    assert len(list(tmp_path.iterdir())) == 2


def test_no_record(tmp_path: Path) -> None:
    assert read_record(tmp_path / "m.engine") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "{}",
        json.dumps({"schema_version": 1}),
        '{"model_sha256": "\\ud800"}',
    ],
)
def test_a_damaged_record_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.engine.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_record(tmp_path / "m.engine")
    assert "m.engine.json is not a plan record" in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.sampled_from(["dtype", "shape", "name", "dims", "batch_axis"]))
def test_a_record_with_a_missing_part(part: str) -> None:
    from engine.backends.trt_plan import _from_json, _to_json

    data = json.loads(json.dumps(_to_json(RECORD)))
    assert _from_json(data) == RECORD
    del data["inputs"][0][part]
    with pytest.raises(KeyError):
        _from_json(data)
