"""Saved engines: loading gives the same engine, or is refused."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import numpy_helper
from support import DIGITS, RunPython, SaveOnnx

from engine import PASS_PATH, ConfigError, EngineSpec, ModelError, open_engine
from engine.sdaa.engine import SdaaEngine
from engine.sdaa.faults import Fault
from engine.sdaa.saved import lowering_versions, read_model, read_saved, saved_path, sources, write_saved
from engine.tecoinfer_pytorch import TecoInferEngine
from tecoinfer_modelzoo.errors import DeviceOutOfMemory

rng = np.random.default_rng(0)

LINE = "agraph (float[N,3] x) => (float[N,3] y) { y = Mul(x, x) }"
TWO = """
agraph (float[N,3,H] x, int64[2] k, float[M,4] z) => (float[N,3,H] y, float[M,4] s, int64[2] d) {
    a = Relu(x)
    y = Add(a, a)
    s = Sigmoid(z)
    d = Add(k, k)
}
"""
TWO_SIZES = {"x": (2, 3, 5), "k": (2,), "z": (2, 4)}


def opened(path: Path, **options: Any) -> SdaaEngine:
    faults = options.pop("faults", None)
    return SdaaEngine(EngineSpec(ckpt=path, **options), faults=faults)


def save(path: Path, **options: Any) -> Path:
    with opened(path, save_engine=True, **options) as engine:
        assert not engine.loaded
    return saved_path(path)


def assert_same(built: SdaaEngine, loaded: SdaaEngine, arrays: list[np.ndarray]) -> None:
    assert loaded.loaded
    assert not built.loaded
    for name in ("inputs", "outputs", "metadata", "cost", "shard_size", "dtype", "lead", "static_batch"):
        assert getattr(loaded, name) == getattr(built, name), name
    assert loaded.describe() == built.describe()
    want, got = built(arrays), loaded(arrays)
    for a, b in zip(*([r] if isinstance(r, np.ndarray) else r for r in (want, got)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert loaded.calls == built.calls
    assert loaded.device_report() == built.device_report()


@pytest.fixture
def digits_onnx(tmp_path: Path) -> Path:
    return Path(shutil.copy(DIGITS / "digits_dyn.onnx", tmp_path / "digits.onnx"))


# ---------------------------------------------------------------------------------------------------------- the same


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "float32"])
@pytest.mark.parametrize("pass_path", [None, PASS_PATH / "default_pass.py", PASS_PATH / "resnet/resnet_pass.py"])
def test_digits_load_as_built(digits_onnx: Path, dtype: str | None, pass_path: Path | None) -> None:
    options: dict[str, Any] = {
        "dtype": dtype,
        "pass_path": pass_path,
        "batch_size": 16,
        "input_size": ((4, 3, 32, 32),),
    }
    built = opened(digits_onnx, save_engine=True, **options)
    x = rng.standard_normal((19, 3, 32, 32)).astype(built.input_dtype)
    assert_same(built, opened(digits_onnx, **options), [x])
    again = opened(digits_onnx, **options)
    np.testing.assert_array_equal(again(x), built(x))
    by_itself = opened(saved_path(digits_onnx))
    assert by_itself.loaded
    assert by_itself.dtype == built.dtype
    np.testing.assert_array_equal(by_itself(x), built(x))


@pytest.mark.parametrize("order", [(), ("z", "x", "k"), ("k", "z", "x")])
def test_several_inputs_in_any_order(order: tuple[str, ...], save_onnx: SaveOnnx) -> None:
    names = order or ("x", "k", "z")
    feed = {
        "x": rng.standard_normal((7, 3, 5)).astype(np.float16),
        "k": np.array([3, 4]),
        "z": rng.standard_normal((7, 4)).astype(np.float16),
    }
    options = {"input_name": order, "input_size": tuple(TWO_SIZES[name] for name in names), "batch_size": 8}
    path = save_onnx(TWO)
    built = opened(path, save_engine=True, **options)
    arrays = [feed[name] for name in names]
    assert_same(built, opened(path, **options), arrays)
    for want, got in zip(built(arrays), opened(saved_path(path))([feed[name] for name in "xkz"]), strict=True):
        np.testing.assert_array_equal(want, got)
    other = tuple(reversed(names))  # the order is the caller's business, not the saved engine's
    direct = opened(saved_path(path), input_name=other)
    for want, got in zip(built(arrays), direct([feed[name] for name in other]), strict=True):
        np.testing.assert_array_equal(want, got)


def test_a_fixed_batch_and_no_batch_at_all(save_onnx: SaveOnnx) -> None:
    for name, text, shape in (
        ("fixed.onnx", "agraph (float[4,3] x) => (float[4,3] y) { y = Mul(x, x) }", (6, 3)),
        ("scalar.onnx", "agraph (float x) => (float y) { y = Mul(x, x) }", ()),
    ):
        path = save_onnx(text, name)
        built = opened(path, save_engine=True, batch_size=8)
        x = rng.standard_normal(shape).astype(np.float16)
        assert_same(built, opened(path, batch_size=8), [np.asarray(x)])
        np.testing.assert_array_equal(opened(saved_path(path))(np.asarray(x)), built(np.asarray(x)))


def test_weights_next_to_the_model(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]>\nagraph (float[N,400] x) => (float[N,400] y) { y = Mul(x, w) }'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.full(400, 2, np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="m.data")
    save(path)
    x = np.ones((1, 400), np.float16)
    assert opened(path).loaded
    stat = (tmp_path / "m.data").stat()
    (tmp_path / "m.data").write_bytes(np.full(400, 3, np.float32).tobytes())
    os.utime(tmp_path / "m.data", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # size and times as they were
    changed = opened(path)
    assert not changed.loaded
    np.testing.assert_array_equal(changed(x), 3 * x)
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"external file 'm\.data'"):
        opened(path)
    np.testing.assert_array_equal(opened(saved_path(path))(x), 2 * x)  # it has the weights in it


def test_metadata_is_kept(tmp_path: Path) -> None:
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    model.metadata_props.add(key="note", value='零 "quoted"\n\0')
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    saved = save(path, input_size=((1, 3, 32, 32),))
    want = {entry.key: entry.value for entry in model.metadata_props}
    assert opened(saved).metadata == want
    assert read_saved(saved).metadata == want


def test_faults_and_clock_are_those_of_a_built_engine(digits_onnx: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "input_size": ((2, 3, 32, 32),)}
    save(digits_onnx, **options)
    faults = [Fault("lose", 1, 1), Fault("slow", 0, 0, 3.0), Fault("nan", 2, 0), Fault("hang", 3, 2)]
    engines = [
        SdaaEngine(EngineSpec(digits_onnx, **options), faults, save_to=digits_onnx.parent / "elsewhere.tecoengine"),
        SdaaEngine(EngineSpec(digits_onnx, **options), faults),
    ]
    x = rng.standard_normal((8, 3, 32, 32)).astype(np.float16)
    for engine in engines:
        with pytest.warns(UserWarning, match="SLOW"):
            engine(x)
        with pytest.warns(UserWarning, match="DEVICE_LOST"):
            engine(x)
        with pytest.warns(UserWarning, match="HEARTBEAT_ERROR"):
            engine.run_async(x).result()
    built, loaded = engines
    assert [engine.loaded for engine in engines] == [False, True]
    assert built.calls == loaded.calls
    assert built.events == loaded.events
    assert built.card.timeline.spans == loaded.card.timeline.spans


def test_simulate_only_either_way(digits_onnx: Path) -> None:
    options: dict[str, Any] = {"batch_size": 8, "input_size": ((2, 3, 32, 32),)}
    x = rng.standard_normal((8, 3, 32, 32)).astype(np.float16)
    built = opened(digits_onnx, simulate_only=True, save_engine=True, **options)
    assert_same(built, opened(digits_onnx, simulate_only=True, **options), [x])
    computed = opened(digits_onnx, **options)
    assert computed.loaded
    assert computed(x).any()  # type: ignore[union-attr]
    assert computed.cost == built.cost


SLOW_CARD = """
schema_version: 1
name: SLOW
memory_mb: {value: MEMORY, mark: assumed, source: a test}
host_to_device_gb_s: {value: 1, mark: assumed, source: a test}
device_to_host_gb_s: {value: 1, mark: assumed, source: a test}
copy_launch_us: {value: 100, mark: assumed, source: a test}
heartbeat_ms: {value: 1, mark: assumed, source: a test}
float32_rate: {value: 0.25, mark: assumed, source: a test}
layouts:
  plain:
    compute_tflop_s: {value: 1, mark: assumed, source: a test}
    memory_gb_s: {value: 10, mark: assumed, source: a test}
    launch_us: {value: 50, mark: assumed, source: a test}
"""


def test_another_card_gives_its_own_times_and_limits(
    digits_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"batch_size": 8, "input_size": ((2, 3, 32, 32),)}
    saved = save(digits_onnx, **options)
    usual = opened(saved).cost
    (tmp_path / "slow.yaml").write_text(SLOW_CARD.replace("MEMORY", "100"))
    monkeypatch.setenv("TECO_SIM_CARD", str(tmp_path / "slow.yaml"))
    loaded = opened(digits_onnx, **options)
    built = SdaaEngine(EngineSpec(digits_onnx, **options), save_to=tmp_path / "other.tecoengine")
    assert (loaded.loaded, built.loaded) == (True, False)
    assert loaded.cost == built.cost
    assert loaded.cost.compute > usual.compute
    assert read_saved(saved).card == "TECO_AICARD_01"
    assert read_saved(tmp_path / "other.tecoengine").card == "SLOW"
    (tmp_path / "tiny.yaml").write_text(SLOW_CARD.replace("MEMORY", "0.01"))
    monkeypatch.setenv("TECO_SIM_CARD", str(tmp_path / "tiny.yaml"))
    with pytest.raises(DeviceOutOfMemory, match="the model's batch is fixed"):
        opened(saved)


NO_ONNX = """
import sys
for name in ("onnx", "onnxscript", "onnx_ir", "onnxconverter_common", "torch"):
    sys.modules[name] = None
from pathlib import Path
import numpy as np
from engine import EngineSpec, open_engine
path = Path(sys.argv[1])
for spec in (EngineSpec(path), EngineSpec(path.with_suffix(".onnx"), 4, ((1, 3, 32, 32),))):
    with open_engine("sdaa", spec) as engine:
        assert engine.loaded
        print(engine(np.ones((5, 3, 32, 32), np.float16)).shape)
"""


def test_loading_needs_no_onnx_package(digits_onnx: Path, run_python: RunPython) -> None:
    saved = save(digits_onnx, batch_size=4, input_size=((1, 3, 32, 32),))
    done = run_python("-c", NO_ONNX, saved)
    assert (done.stderr, done.stdout.split("\n")) == ("", ["(5, 10)", "(5, 10)", ""])


def test_the_historical_face_saves_and_loads(digits_onnx: Path) -> None:
    x = rng.standard_normal((4, 3, 32, 32)).astype(np.float16)
    keywords: dict[str, Any] = {"input_size": [[1, 3, 32, 32]], "batch_size": 4, "dtype": "float16", "target": "sdaa"}
    built = TecoInferEngine(ckpt=digits_onnx, save_engine=True, **keywords)
    loaded = TecoInferEngine(ckpt=saved_path(digits_onnx), **keywords)
    assert [e.engine.loaded for e in (built, loaded)] == [False, True]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(built(x), loaded(x))


# ------------------------------------------------------------------------------------------------------------- stale


def touch_nothing_but_the_source(path: Path) -> None:
    """Change the model but neither its size nor its times."""
    stat = path.stat()
    data = path.read_bytes()
    changed = data.replace(b"Mul", b"Add")
    assert len(changed) == len(data) != changed
    path.write_bytes(changed)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def alter(path: Path, change: Callable[[Any], Any]) -> None:
    saved = read_saved(saved_path(path))
    write_saved(saved_path(path), change(saved), read_model(saved_path(path), saved))


def with_version(name: str) -> Callable[[Path], None]:
    def change(saved: Any) -> Any:
        return replace(saved, origin=replace(saved.origin, versions={**saved.origin.versions, name: "0.0.1"}))

    return lambda path: alter(path, change)


def raise_schema(path: Path) -> None:
    data = saved_path(path).read_bytes()
    assert data.startswith(b"tecoengine 2 ")
    saved_path(path).write_bytes(data.replace(b"tecoengine 2 ", b"tecoengine 1 ", 1))


SOURCE = "def use_passes(model):\n    return model\n"

STALE: dict[str, tuple[Callable[[Path], object], dict[str, Any], str]] = {
    "source": (touch_nothing_but_the_source, {}, "model.onnx was changed;"),
    "pass text": (lambda p: (p.parent / "a_pass.py").write_text(SOURCE + "#\n"), {}, "a_pass.py was changed;"),
    "no pass": (lambda p: None, {"pass_path": None}, "pass was a_pass.py, now none"),
    "dtype": (lambda p: None, {"dtype": "float32"}, "dtype was float16, now float32"),
    "batch": (lambda p: None, {"batch_size": 16}, "input shapes was x 2x3, now x 4x3"),
    "input_size": (lambda p: None, {"input_size": ((5, 3),)}, "input shapes was x 2x3, now x 5x3"),
    "zoo": (with_version("sources"), {}, "version of sources was 0.0.1, now "),
    "onnx": (with_version("onnx"), {}, "version of onnx was 0.0.1, now "),
    "schema": (raise_schema, {}, "has format version 1, this zoo reads 2"),
}


@pytest.mark.parametrize("case", STALE)
def test_a_stale_engine_is_logged_and_rebuilt(case: str, save_onnx: SaveOnnx, caplog: pytest.LogCaptureFixture) -> None:
    change, other, reason = STALE[case]
    path = save_onnx(LINE)
    pass_path = path.parent / "a_pass.py"
    pass_path.write_text(SOURCE)
    options: dict[str, Any] = {"batch_size": 8, "pass_path": pass_path}
    save(path, **options)
    change(path)
    x = np.full((3, 3), 3, np.float16)
    want = x + x if case == "source" else x * x
    before = saved_path(path).read_bytes()
    with caplog.at_level(logging.INFO, "engine.sdaa"), opened(path, **options | other) as engine:
        assert not engine.loaded
        np.testing.assert_array_equal(engine(x.astype(engine.input_dtype)), want)
    (said,) = caplog.messages
    assert reason in said
    assert said.endswith(f"building from {path}")
    assert "\n" not in said
    assert saved_path(path).read_bytes() == before  # only save_engine writes
    save(path, **options | other)
    with opened(path, **options | other) as engine:
        assert engine.loaded
        np.testing.assert_array_equal(engine(x.astype(engine.input_dtype)), want)


@pytest.mark.parametrize("case", [case for case in STALE if case not in ("source", "no pass", "batch")])
def test_a_stale_saved_engine_is_refused_by_default(case: str, save_onnx: SaveOnnx) -> None:
    change, other, reason = STALE[case]
    path = save_onnx(LINE)
    pass_path = path.parent / "a_pass.py"
    pass_path.write_text(SOURCE)
    save(path, batch_size=8, pass_path=pass_path)
    change(path)
    with pytest.raises(ModelError) as caught:
        opened(saved_path(path), **{"pass_path": pass_path, **other})
    assert reason in str(caught.value)
    assert f"saved engine {saved_path(path)}" in str(caught.value)
    assert "save it again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_that_does_not_fit_the_model_is_a_config_error(save_onnx: SaveOnnx) -> None:
    saved = save(save_onnx(LINE), batch_size=8)
    with pytest.raises(ConfigError, match="input_size has 2 shapes"):
        opened(saved, input_size=((2, 3), (2, 3)))
    with pytest.raises(ConfigError, match="does not fit input 'x'"):
        opened(saved, input_size=((2, 4),))


def test_a_saved_engine_runs_on_any_number_of_spa(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = save(save_onnx(LINE), batch_size=8)
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    with opened(saved) as engine:
        assert (len(engine.card.spas), engine.shard_size) == (3, 2)
        assert engine(np.ones((8, 3), np.float16)).shape == (8, 3)  # type: ignore[union-attr]


CHANGES_ITS_SOURCE = """
import pathlib
def use_passes(model):
    path = pathlib.Path(__file__).with_name("model.onnx")
    path.write_bytes(path.read_bytes().replace(b"Mul", b"Add"))
    return model
"""


def test_a_source_changed_while_building_invalidates_the_build(save_onnx: SaveOnnx) -> None:
    path = save_onnx(LINE)
    pass_path = path.parent / "a_pass.py"
    pass_path.write_text(CHANGES_ITS_SOURCE)
    x = np.full((1, 3), 3, np.float16)
    with opened(path, pass_path=pass_path, save_engine=True) as engine:
        np.testing.assert_array_equal(engine(x), x * x)
    with opened(path, pass_path=pass_path) as engine:
        assert not engine.loaded
        np.testing.assert_array_equal(engine(x), x + x)


def test_files_of_the_zoo_count_as_a_version() -> None:
    found = lowering_versions()
    assert set(found) == {"zoo", "onnx", "onnxruntime", "onnxscript", "sources"}
    assert found["onnx"] == onnx.__version__
    assert PASS_PATH / "runner.py" in sources()


# ----------------------------------------------------------------------------------------------------------- damaged


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "m.onnx"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{LINE}')
    onnx.save(model, str(path))
    save(path, batch_size=4)
    saved_path(path).rename(path.with_suffix(".whole"))
    return path


def check_damaged(path: Path, data: bytes) -> None:
    saved_path(path).write_bytes(data)
    x = np.full((2, 3), 3, np.float16)
    with pytest.raises(ModelError) as caught:
        opened(saved_path(path))
    assert "\n" not in str(caught.value)
    with opened(path, batch_size=4) as engine:
        assert not engine.loaded
        np.testing.assert_array_equal(engine(x), x * x)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_rejected(where: float, bit: int, whole: Path) -> None:
    data = bytearray(whole.with_suffix(".whole").read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    check_damaged(whole, bytes(data))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), tail=st.binary(max_size=20))
def test_truncated_or_extended_content_is_rejected(where: float, tail: bytes, whole: Path) -> None:
    data = whole.with_suffix(".whole").read_bytes()
    cut = data[: int(where * len(data))]
    check_damaged(whole, cut)
    check_damaged(whole, data + b"\0" + tail)
    if cut + tail != data[: len(cut + tail)]:
        check_damaged(whole, cut + tail)


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_other_content_is_rejected(data: bytes, whole: Path) -> None:
    check_damaged(whole, data)


def forge(path: Path, manifest: bytes) -> None:
    """Write a file whose manifest has the right hash."""
    header = f"tecoengine 2 {len(manifest)} {hashlib.sha256(manifest).hexdigest()}\n".encode()
    saved_path(path).write_bytes(header + manifest)


MISSING = object()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("origin",), None),
        (("origin", "external"), ["../../etc/passwd"]),
        (("origin", "external"), ["/dev/zero"]),
        (("origin", "dtype"), MISSING),
        (("origin", "more"), "than known"),
        (("work", "weights"), "many"),
        (("work", "kernels"), [{}]),
        (("work", "kernels"), 3),
        (("outputs",), [{"name": "y"}]),
        (("shapes",), {"x": ["N", 3]}),
        (("origin", "versions"), 3),
        (("dtypes",), {"x": "float17"}),
        (("dtypes",), {"y": "float16"}),
        (("dims",), {}),
        (("batch_axes",), {"x": True}),
        (("batch_axes",), MISSING),
        (("independent",), "yes"),
        (("model_bytes",), "1e3"),
        (("model_bytes",), -5),
        (("model_bytes",), 10**18),
        (("layout",), ["plain"]),
        (("reason",), None),
        (("converted",), 1),
        (("metadata",), [["class_labels", "[]"]]),
        (("metadata",), {"class_labels": 3}),
        (("metadata",), {"class_labels": "\ud800"}),
        (("dtypes",), {"x": ["float16"]}),
        (("dims",), {"x": [["N"], 3]}),
        (("dims",), {"x": ["N", 4]}),
        (("shapes",), {"x": [4, -3]}),
        (("shapes",), {"x": [True, 3]}),
        (("shapes",), {"x": [10**18, 3]}),
        (("shard_size",), 0),
        (("shard_size",), 1.0),
        (("batch_axes",), {"x": 2}),
        (("outputs", 0, "shape"), [2.5, 3]),
        (("outputs", 0, "symbols"), ["N"]),
        (("outputs", 0, "name"), {}),
        (("outputs", 0, "name"), "z"),
        (("outputs", 0, "dtype"), "float32"),
        (("outputs",), []),
        (("work", "weights"), float("nan")),
        (("work", "weights"), 1e300),
        (("work", "float16"), "no"),
        (("work", "kernels", 0, "flops"), float("inf")),
        (("work", "kernels", 0, "reads"), "x"),
        (("card",), {"a": 1}),
    ],
)
def test_a_forged_manifest_is_refused(keys: tuple[str | int, ...], value: object, whole: Path) -> None:
    data = whole.with_suffix(".whole").read_bytes()
    head, rest = data.split(b"\n", 1)
    length = int(head.split()[2])
    manifest = json.loads(rest[:length])
    inner = manifest
    for key in keys[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    forge(whole, json.dumps(manifest).encode())
    check_damaged(whole, saved_path(whole).read_bytes() + rest[length:])


@pytest.mark.parametrize("manifest", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff", b'{"origin": {}}'])
def test_an_invalid_manifest_is_refused(manifest: bytes, whole: Path) -> None:
    forge(whole, manifest)
    check_damaged(whole, saved_path(whole).read_bytes())


def test_a_manifest_of_excessive_size_is_not_read(whole: Path) -> None:
    check_damaged(whole, b"tecoengine 2 999999999 " + b"0" * 64 + b"\n")


def test_a_missing_file_or_a_folder(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    with pytest.raises(ModelError, match=r"gone\.tecoengine .*: No such file"):
        opened(tmp_path / "gone.tecoengine")
    (tmp_path / "model.tecoengine").mkdir()
    with pytest.raises(ModelError, match=r"model\.tecoengine.*: it is a folder"):
        opened(tmp_path / "model.tecoengine")
    with opened(save_onnx(LINE)) as engine:
        assert not engine.loaded


# ------------------------------------------------------------------------------------------------------ cannot be saved


@contextmanager
def full_disk(free: int) -> Iterator[None]:
    """Limit file sizes to ``free`` bytes, to simulate a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("free", [0, 100, 1500])
def test_a_full_disk_leaves_the_old_file(free: int, digits_onnx: Path) -> None:
    saved = save(digits_onnx, input_size=((1, 3, 32, 32),))
    before, listing = saved.read_bytes(), sorted(digits_onnx.parent.iterdir())
    assert len(before) > 2000
    with full_disk(free), pytest.raises(ConfigError) as caught:
        opened(digits_onnx, input_size=((2, 3, 32, 32),), save_engine=True)
    assert str(caught.value).startswith(f"saved engine {saved} cannot be written: ")
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == before
    assert sorted(digits_onnx.parent.iterdir()) == listing
    assert opened(digits_onnx, input_size=((1, 3, 32, 32),)).loaded


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(save_onnx: SaveOnnx) -> None:
    path = save_onnx(LINE)
    saved = save(path)
    before = saved.read_bytes()
    path.parent.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="cannot be written: Permission denied"):
            opened(path, batch_size=8, save_engine=True)
        assert opened(path).loaded
    finally:
        path.parent.chmod(0o755)
    assert saved.read_bytes() == before


def test_a_missing_folder(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m\.tecoengine.*No such file"):
        SdaaEngine(EngineSpec(save_onnx(LINE)), save_to=tmp_path / "none" / "m.tecoengine")


def test_a_model_that_cannot_be_built_is_not_saved(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        opened(tmp_path / "gone.onnx", save_engine=True)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match=r"bad\.onnx.*not ONNX"):
        opened(tmp_path / "bad.onnx", save_engine=True)
    assert not list(tmp_path.glob("*.tecoengine"))


def test_the_command_line_of_a_model_uses_its_folder(digits_onnx: Path) -> None:
    """The same through the registry."""
    save(digits_onnx, batch_size=4, input_size=((1, 3, 32, 32),))
    with open_engine("sdaa", EngineSpec(digits_onnx, 4, ((1, 3, 32, 32),))) as engine:
        assert isinstance(engine, SdaaEngine)
        assert engine.loaded


def test_the_historical_interface_has_no_default_pass(save_onnx: SaveOnnx) -> None:
    saved = save(save_onnx(LINE), batch_size=8)
    engine = TecoInferEngine(ckpt=saved, dtype="float16", target="sdaa")
    assert engine(np.ones((3, 3), np.float16)).shape == (3, 3)  # type: ignore[union-attr]
    with pytest.raises(ModelError, match=r"pass was none, now default_pass\.py;"):
        TecoInferEngine(ckpt=saved, dtype="float16", pass_path=PASS_PATH / "default_pass.py")
