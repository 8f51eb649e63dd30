from __future__ import annotations

import importlib.util
import json
import logging
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support import RunPython, SaveOnnx, computes_bfloat16, require_bfloat16

from engine import ConfigError, Engine, EngineError, EngineSpec, InputError, ModelError, TargetError, open_engine
from engine.backends import trial
from engine.backends.null import NullEngine
from engine.backends.trial import Contender, TrialResult, choose, random_input
from engine.base import Array

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

DYNAMIC = "g (float[N,4] x) => (float[N,2] y) <float[4,2] w={1,2,3,4,5,6,7,8}> { y = MatMul(x, w) }"
WEIGHT = np.arange(1, 9, dtype=np.float32).reshape(4, 2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.05)
    return tmp_path / "cache"


@pytest.fixture
def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an entry per measured trial."""
    run: list[int] = []
    measure = trial._measure
    monkeypatch.setattr(trial, "_measure", lambda *args: run.append(1) or measure(*args))
    return run


def opened(path: Path, **options: object) -> Engine:
    return open_engine("cpu", EngineSpec(ckpt=path, **options))  # type: ignore[arg-type]


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------------------- float32


@needs_openvino
def test_a_trial_is_run_once_and_remembered(
    digits: Path, cache: Path, trials: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    path, x = digits / "digits_dyn.onnx", random(8, 3, 32, 32)
    with opened(path, batch_size=8) as engine:
        first, said = engine(x), engine.describe()
        assert engine.metadata["class_labels"]
    assert trials == [1]
    assert said.endswith(" in a trial)")
    assert {"ONNX Runtime", "OpenVINO"} == {name for name in ("ONNX Runtime", "OpenVINO") if name in said}
    caplog.set_level(logging.INFO)
    with opened(path, batch_size=8) as engine:
        np.testing.assert_array_equal(engine(x), first)
        assert engine.describe() == said
    assert trials == [1]
    assert "cached trial: " in caplog.text
    # another batch, dtype, number of streams or model is another question
    questions: list[dict[str, object]] = [{"batch_size": 9}, {"batch_size": 8, "streams": 2}]
    if computes_bfloat16():
        questions.append({"batch_size": 8, "dtype": "bfloat16"})
    for options in questions:
        opened(path, **options).release()
    opened(digits / "digits.onnx", batch_size=8).release()
    assert len(trials) == len(list((cache / "trials").glob("*.json"))) == 2 + len(questions)


@pytest.mark.slow
@needs_openvino
@pytest.mark.parametrize(
    "damage", [b"", b"\x00\xff{", b"[]", b"{}", b'{"chosen": "cat", "seconds": {}, "refused": {}}']
)
def test_a_damaged_cache_entry_repeats_the_trial(
    damage: bytes, save_onnx: SaveOnnx, cache: Path, trials: list[int]
) -> None:
    path = save_onnx(DYNAMIC)
    opened(path).release()
    (entry,) = (cache / "trials").glob("*.json")
    kept = json.loads(entry.read_text())
    for content in (damage, json.dumps({**kept, "seconds": {kept["chosen"]: -1}}).encode()):
        entry.write_bytes(content)
        opened(path).release()
    assert len(trials) == 3
    assert json.loads(entry.read_text())["chosen"]


@needs_openvino
def test_a_cache_that_cannot_be_written_costs_only_the_trial(
    save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials: list[int]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    for _ in range(2):
        with opened(save_onnx(DYNAMIC)) as engine:
            np.testing.assert_allclose(engine(random(3, 4)), random(3, 4) @ WEIGHT, rtol=1e-5)
    assert len(trials) == 2


@needs_openvino
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("name", ["digits.onnx", "digits_dyn.onnx"])
def test_streams_and_batches(name: str, streams: int, digits: Path) -> None:
    x = random(40, 3, 32, 32)
    with opened(digits / name, streams=streams) as engine:
        want = [engine(x[:size]) for size in (1, 7, 16, 40)]
        calls = [engine.run_async(x[:size]) for size in (1, 7, 16, 40)]
        for call, y in zip(calls, want, strict=True):
            np.testing.assert_array_equal(call.result(), y)


def test_a_single_installed_engine_is_used_without_a_trial(
    without_openvino: None, save_onnx: SaveOnnx, cache: Path, trials: list[int]
) -> None:
    with opened(save_onnx(DYNAMIC)) as engine:
        assert "ONNX Runtime" in engine.describe()
        np.testing.assert_allclose(engine(random(3, 4)), random(3, 4) @ WEIGHT, rtol=1e-5)
    assert not trials
    assert not cache.exists()
    with pytest.raises(ConfigError, match=r"bfloat16.*\[openvino\].*--dtype float32"):
        opened(save_onnx(DYNAMIC), dtype="bfloat16")


@pytest.mark.parametrize("there", [True, False], ids=["installed", "missing"])
def test_float16_equals_onnx_runtime(there: bool, save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    if not there:
        monkeypatch.setitem(sys.modules, "openvino", None)
    with opened(save_onnx(DYNAMIC), dtype="float16") as engine:
        assert engine.input_dtype == engine.dtype == "float16"
        assert engine(np.ones((2, 4), np.float16)).dtype == np.float16
        assert "ONNX Runtime" in engine.describe()


@needs_openvino
def test_a_model_that_only_onnx_runtime_runs(save_onnx: SaveOnnx, trials: list[int]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N,4] x) => (float[N,N] y) { y = com.microsoft.CDist(x, x) }"""
    for _ in range(2):
        with opened(save_onnx(text)) as engine:
            np.testing.assert_allclose(engine(np.ones((3, 4), np.float32)), np.zeros((3, 3)))
            assert engine.describe().startswith("ONNX Runtime")
            assert "OpenVINO" in engine.describe()
            assert engine.describe().endswith("No conversion rule found for operations: com.microsoft.CDist)")
    assert not trials


@needs_openvino
def test_a_free_dimension_means_no_trial(save_onnx: SaveOnnx, trials: list[int]) -> None:
    path = save_onnx("g (float[N,W] x) => (float[N,W] y) { y = Relu(x) }")
    with opened(path) as engine:
        assert engine.describe().startswith("ONNX Runtime")
        np.testing.assert_array_equal(engine(random(2, 5)), np.maximum(random(2, 5), 0))
    assert not trials
    opened(path, input_size=((1, 5),)).release()
    assert trials == [1]


@needs_openvino
def test_bfloat16_is_computed_by_openvino(digits: Path) -> None:
    require_bfloat16()
    with opened(digits / "digits_dyn.onnx", dtype="bfloat16") as engine:
        assert (engine.dtype, engine.input_dtype) == ("bfloat16", "float32")
        assert engine.describe().startswith("OpenVINO")
        assert "float32 in a trial" in engine.describe()
        x = random(8, 3, 32, 32)
        y = engine(x)
    with open_engine("onnx", EngineSpec(ckpt=digits / "digits_dyn.onnx")) as baseline:
        want = baseline(x)
    assert 0 < np.abs(y - want).max() < 2**-5 * np.abs(want).max()


@needs_openvino
def test_bfloat16_needs_a_processor_that_has_it(digits: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import ov

    monkeypatch.setitem(ov._PRECISION, "bfloat16", "f32")  # what OpenVINO takes bf16 for on a processor without it
    with pytest.raises(TargetError, match=r"^OpenVINO.*bfloat16.*--dtype"):
        opened(digits / "digits_dyn.onnx", dtype="bfloat16")
    assert not list((cache / "trials").glob("*.json"))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_bad_files_keep_their_reasons(dtype: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.onnx"
    for content, reason in ((None, "does not exist"), (b"", "is empty"), (b"hello\n", "not ONNX or is cut short")):
        if content is not None:
            bad.write_bytes(content)
        with pytest.raises(ModelError, match=rf"bad.onnx.*{reason}"):
            opened(bad, dtype=dtype)


# --------------------------------------------------------------------------------------------------------------- trial


class Wrong(NullEngine):
    """Returns zeros: fast, and wrong."""


class Broken(NullEngine):
    def infer(self, inputs: list[Array]) -> list[Array]:
        raise EngineError("it broke")


def _contenders(path: Path, *others: type[Engine]) -> list[Contender]:
    spec = EngineSpec(ckpt=path)
    return [
        Contender("baseline", lambda: open_engine("onnx", spec)),
        *(Contender(other.__name__, lambda other=other: other(spec)) for other in others),  # type: ignore[misc]
    ]


@pytest.mark.parametrize(
    ("other", "reason"), [(Wrong, "differs from the baseline's by"), (Broken, "it broke")], ids=["wrong", "broken"]
)
def test_an_engine_that_is_wrong_or_fails_is_not_chosen(
    other: type[Engine], reason: str, save_onnx: SaveOnnx, caplog: pytest.LogCaptureFixture, trials: list[int]
) -> None:
    contenders = _contenders(save_onnx(DYNAMIC), other)
    for _ in range(2):
        engine, verdict = choose(contenders, "k", lambda e: random_input(e, 1), agree=True)
        engine.release()
        assert (verdict.chosen, list(verdict.refused)) == ("baseline", [other.__name__])
        assert reason in verdict.describe()
    assert trials == ([1] if other is Wrong else [1, 1])  # a failure is not cached
    assert f"{other.__name__} is not used: " in caplog.text


def test_the_first_reason_is_reported_if_all_engines_fail(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        choose(_contenders(tmp_path / "no.onnx", Wrong), "k", lambda e: random_input(e, 1), agree=True)


def test_a_reference_is_measured_but_never_chosen(save_onnx: SaveOnnx) -> None:
    slow, fast = _contenders(save_onnx(DYNAMIC), Wrong)
    fast = Contender(fast.name, fast.open, may_win=False)
    engine, verdict = choose([slow, fast], "k", lambda e: random_input(e, 1), agree=False)
    engine.release()
    assert verdict.chosen == "baseline"
    assert verdict.seconds["Wrong"] > 0


def test_description_of_a_trial_result() -> None:
    seconds = {"ONNX Runtime 1 float32": 1.9, "OpenVINO 2 bfloat16": 1.0}
    assert TrialResult("OpenVINO 2 bfloat16", seconds).describe() == (
        "OpenVINO 2 bfloat16 (1.9 times ONNX Runtime 1 float32 in a trial)"
    )
    assert TrialResult("A").describe() == "A"


@pytest.mark.slow
def test_processes_that_open_one_model_together_agree(save_onnx: SaveOnnx, run_python: RunPython, cache: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom engine import *\n"
        "print(open_engine('cpu', EngineSpec(Path(sys.argv[1]))).describe())"
    )
    path = save_onnx(DYNAMIC)
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run_python("-c", code, path), range(3)))
    assert [d.stderr for d in done] == [""] * 3
    assert len({d.stdout for d in done}) == 1


# ---------------------------------------------------------------------------------------------------------------- int8


def test_int8_requires_calibration_samples(save_onnx: SaveOnnx) -> None:
    with opened(save_onnx(DYNAMIC), dtype="int8", calibration=7) as engine:
        assert (engine.calibration_samples, engine.input_dtype, engine.dtype) == (7, "float32", "int8")
        assert engine.describe() == "int8, to be calibrated from 7 samples"
        with pytest.raises(EngineError, match=r"\b7\b.*calibrate\(\)"):
            engine(random(1, 4))
        with pytest.raises(EngineError, match=r"calibrate\(\) got no samples.*\b7$"):
            engine.calibrate([])
        with pytest.raises(InputError, match="the model takes Nx4"):
            engine.calibrate([[random(2, 5)]])
        bad = random(2, 4)
        bad[1, 1] = np.nan
        with pytest.raises(InputError, match="input 'x' hold values that are not finite"):
            engine.calibrate([[bad]])
        assert engine.calibration_samples == 7
        engine.calibrate([[random(7, 4)]])
        assert engine.calibration_samples == 0
    with opened(save_onnx(DYNAMIC)) as engine, pytest.raises(EngineError, match="needs no calibration"):
        engine.calibrate([[random(7, 4)]])


def test_int8_requires_a_positive_number_of_samples() -> None:
    with pytest.raises(ConfigError, match=r"calibration 0 .* 1 sample"):
        EngineSpec(ckpt=Path("m.onnx"), calibration=0)


def test_int8_of_a_float16_model_is_an_error(digits: Path) -> None:
    with pytest.raises(ModelError, match=r"float16; int8 .*float32"):
        opened(digits / "digits_float16_dyn.onnx", dtype="int8")


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("name", ["digits.onnx", "digits_dyn.onnx"])
def test_int8_runs_any_batch(name: str, streams: int, digits: Path, images: tuple[Array, Array]) -> None:
    x, _ = images
    with opened(digits / name, dtype="int8", streams=streams) as engine:
        engine.calibrate([[x[::5]], [x[1::20]]])
        whole = engine(x[:40])
        assert whole.dtype == np.float32
        assert engine.metadata["class_labels"]
        for call, size in [(engine.run_async(x[:size]), size) for size in (1, 7, 16, 40)]:
            np.testing.assert_allclose(call.result(), whole[:size], atol=0.2)


def test_int8_keeps_the_metric_of_the_digits(digits: Path, images: tuple[Array, Array]) -> None:
    x, labels = images
    with opened(digits / "digits_dyn.onnx", dtype="int8", batch_size=64) as engine:
        engine.calibrate([[x[::3]]])
        hits = (engine(x).argmax(1) == labels).mean()
        assert " int8" in engine.describe()
    assert hits > 0.99 * 0.994444


@pytest.mark.slow
def test_int8_model_is_created_once_for_the_same_samples(
    digits: Path, images: tuple[Array, Array], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, _ = images
    caplog.set_level(logging.INFO)

    def scores(samples: Array) -> Array:
        caplog.clear()
        with opened(digits / "digits_dyn.onnx", dtype="int8") as engine:
            engine.calibrate([[samples]])
            return np.asarray(engine(x[:8]))

    first = scores(x[::10])
    (model,) = (cache / "int8").glob("*.onnx")
    assert "cached as" not in caplog.text
    made = model.stat().st_mtime_ns
    np.testing.assert_array_equal(scores(x[::10]), first)
    assert "cached as" in caplog.text
    assert model.stat().st_mtime_ns == made
    # other samples make another file; a damaged one is made again
    scores(x[1::10])
    assert len(list((cache / "int8").glob("*.onnx"))) == 2
    content = model.read_bytes()
    for damaged in (content[:1000], content.replace(content[5000:5008], bytes(8))):
        model.write_bytes(damaged)
        np.testing.assert_array_equal(scores(x[::10]), first)
        assert model.read_bytes() == content


def test_int8_without_a_cache(
    digits: Path, images: tuple[Array, Array], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    engine = opened(digits / "digits_dyn.onnx", dtype="int8")
    engine.calibrate([[images[0][::10]]])
    assert len(list((tmp_path / "scratch").glob("*/int8.onnx"))) == 1
    assert engine(images[0][:3]).shape == (3, 10)
    engine.release()
    assert not list((tmp_path / "scratch").iterdir())


def test_int8_with_onnx_runtime_only(
    without_openvino: None, digits: Path, images: tuple[Array, Array], trials: list[int]
) -> None:
    x, labels = images
    with opened(digits / "digits_dyn.onnx", dtype="int8") as engine:
        engine.calibrate([[x[::10]]])
        assert (engine(x).argmax(1) == labels).mean() > 0.98
        assert engine.describe().startswith("ONNX Runtime")
    assert not trials


@pytest.fixture(scope="module")
def images() -> tuple[Array, Array]:
    """Return the digits' validation set: N x 3 x 32 x 32 images as the model takes them, and labels."""
    from support import DIGITS

    from utils.preprocess.pytorch.classification import preprocess

    files = sorted((DIGITS / "data/val").rglob("*.png"))
    labels = np.array([int(file.parent.name) for file in files])
    return preprocess([str(file) for file in files], "float32", 32, 32), labels
