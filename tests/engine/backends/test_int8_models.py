from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention import calls, transformer
from onnx import numpy_helper
from support import SaveOnnx

from engine import Engine, EngineSpec, ModelError, open_engine
from engine.agreement import Agreement
from engine.backends import int8_models as int8, quantize, trial
from engine.backends.int8_models import passing
from engine.base import Array

CONV = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,16,16] x) => (float[N,4] y)
{
    a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w)
    r = Relu(a)
    a2 = Conv<kernel_shape=[1,1]>(r, w2)
    r2 = Relu(a2)
    p = GlobalAveragePool(r2)
    y = Flatten(p)
}"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(trial, "TRIAL_SECONDS", 0.05)
    return tmp_path / "cache"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry per quantised recipe and per measurement."""
    done: list[str] = []
    make, compare = int8.quantize, int8.agreements
    monkeypatch.setattr(int8, "quantize", lambda c, s, recipe: done.append(recipe.name) or make(c, s, recipe))
    monkeypatch.setattr(int8, "agreements", lambda *args: done.append("measured") or compare(*args))
    return done


def convolution(outlier: float = 1.0) -> onnx.ModelProto:
    """Return a model whose first channel is so many times as large as the others, and divided by that again."""
    random, model = np.random.default_rng(0), onnx.parser.parse_model(CONV)
    w, w2 = random.standard_normal((8, 3, 3, 3)) / 5, random.standard_normal((4, 8, 1, 1)) / 3
    w[0] *= outlier
    w2[:, 0] /= outlier
    for name, array in {"w": w, "w2": w2}.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def images(count: int = 16) -> list[list[Array]]:
    return [[x] for x in np.random.default_rng(1).standard_normal((count, 1, 3, 16, 16)).astype(np.float32)]


def calibrated(path: Path, samples: list[list[Array]], **options: Any) -> Engine:
    engine = open_engine("cpu", EngineSpec(path, dtype="int8", **options))
    engine.calibrate(samples)
    return engine


def test_a_transformer_keeps_what_it_answers(save_onnx: SaveOnnx, made: list[str]) -> None:
    """With sums, masks and attention in int8 as well, the cosine was 0.951."""
    path = save_onnx(transformer())
    seen = calls(32, seed=2)
    with calibrated(path, calls(48)) as engine, open_engine("onnx", EngineSpec(path)) as exact:
        assert engine.agreement is not None
        assert (engine.agreement.recipe, engine.agreement.samples) == ("smooth", 48)
        assert engine.agreement.cosine > 0.99
        assert engine.describe().endswith(f"; {engine.agreement.text}")
        got, want = (np.concatenate([np.asarray(one(list(call))) for call in seen]) for one in (engine, exact))
    cosines = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
    assert cosines.min() > 0.99
    assert made == ["smooth", "measured"]


def test_a_convolution_net_keeps_its_recipe(save_onnx: SaveOnnx, made: list[str]) -> None:
    with calibrated(save_onnx(convolution()), images()) as engine:
        assert engine.agreement is not None
        assert engine.agreement.recipe == "full"
        assert engine.agreement.cosine > 0.99
    assert made == ["full", "measured"]


@pytest.mark.slow
def test_a_second_opening_uses_the_cached_trial(save_onnx: SaveOnnx, made: list[str]) -> None:
    path = save_onnx(transformer())
    said = []
    for batch_size in (1, 1, 4):
        with calibrated(path, calls(16), batch_size=batch_size) as engine:
            said.append(engine.agreement)
    assert said[0] == said[1]
    assert said[0] is not None
    assert made == ["smooth", "measured"]
    with calibrated(path, calls(17)) as engine:  # other samples: another model, another figure
        assert engine.agreement not in (None, said[0])
    assert made == ["smooth", "measured"] * 2


def test_a_model_that_no_recipe_quantises_is_refused_each_time(save_onnx: SaveOnnx, made: list[str]) -> None:
    path = save_onnx(convolution(outlier=5e3))
    texts = set()
    for _ in range(2):
        with pytest.raises(ModelError, match=r"cosine 0\.\d{4}.*16.*0\.99;") as caught:
            calibrated(path, images())
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert made == ["full", "measured", "weights", "measured", "smooth", "measured"]
    with pytest.warns(UserWarning, match="are far from float32's: cosine 0"):
        engine = calibrated(path, images(), min_cosine=0)
    assert np.isfinite(np.asarray(engine(images(3)[0]))).all()
    assert engine.agreement is not None
    assert engine.agreement.text in texts.pop()
    assert engine.describe().endswith(engine.agreement.text)
    engine.release()
    assert len(made) == 6


@pytest.mark.slow
def test_the_next_recipe_is_tried(save_onnx: SaveOnnx, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A transformer that began with the recipe for convolutions ends with another one."""
    monkeypatch.setattr(int8, "recipes", lambda _: (quantize.FULL, quantize.SMOOTH))
    with calibrated(save_onnx(transformer()), calls(16)) as engine:
        assert engine.agreement is not None
        assert engine.agreement.recipe == "smooth"
    assert made == ["full", "measured", "smooth", "measured"]


def test_a_recipe_that_fails_is_passed_over(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    make = int8.quantize

    def failing(ckpt: Path, samples: Any, recipe: quantize.Recipe) -> bytes:
        if recipe.name == "smooth":
            raise ModelError(f"{ckpt} cannot be quantised to int8: no")
        return make(ckpt, samples, recipe)

    monkeypatch.setattr(int8, "quantize", failing)
    with pytest.warns(UserWarning, match=r"cosine 0\.98\d\d .*recipe weights;"):
        engine = calibrated(save_onnx(transformer()), calls(16), min_cosine=0.9)
    with engine:
        assert engine.agreement is not None
        assert engine.agreement.recipe == "weights"
    monkeypatch.setattr(int8, "recipes", lambda _: (quantize.SMOOTH,))
    with pytest.raises(ModelError, match="quantised to int8: no"):
        calibrated(save_onnx(transformer()), calls(16))


def test_with_onnx_runtime_alone(save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with calibrated(save_onnx(transformer()), calls(16)) as engine:
        assert engine.agreement is not None
        assert engine.describe().startswith("ONNX Runtime")


def test_a_damaged_agreement_is_measured_again(save_onnx: SaveOnnx, cache: Path, made: list[str]) -> None:
    path = save_onnx(convolution())
    calibrated(path, images()).release()
    (entry,) = (cache / "int8").glob("agreement-*.json")
    for content in ("{", "[]", '{"a": 1}', '{"a": ["x", "y", 1]}'):
        entry.write_text(content)
        calibrated(path, images()).release()
    assert made == ["full"] + ["measured"] * 5


def test_samples_that_fill_a_call_are_not_counted(save_onnx: SaveOnnx) -> None:
    text = CONV.replace("float[N,", "float[8,")
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(convolution().graph.initializer)
    with calibrated(save_onnx(model), [[np.concatenate([call[0] for call in images(5)])]]) as engine:
        assert engine.agreement is not None
        assert engine.agreement.samples == 5


def test_accuracy_comes_before_speed() -> None:
    good, better, bad = (Agreement(cosine, "y", 8) for cosine in (0.991, 0.999, 0.9))
    assert passing({"a": good, "b": better, "c": bad}) == ["a", "b"]
    assert passing({"c": bad, "d": Agreement(0.8, "y", 8)}) == ["c"]
    assert passing({}) == []
    near, far = Agreement(0.99996, "y", 8), Agreement(0.9931, "y", 8)
    assert passing({"near": near, "far": far, "little": Agreement(0.9993, "y", 8)}) == ["near", "little"]


def test_the_log_names_every_recipe(save_onnx: SaveOnnx, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(ModelError):
        calibrated(save_onnx(convolution(outlier=5e3)), images())
    for name in ("full", "weights", "smooth"):
        assert f"int8 recipe {name} of " in caplog.text
