from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineError, EngineSpec, ModelError, open_engine, register, registry
from engine.agreement import Agreement
from engine.backends.ort import OnnxRuntimeEngine
from engine.base import Array, ConfigError, Engine
from engine.int8 import agreements

TWO = """g (float[N,4] x) => (float[N,2] y, int64[N] best) <float[4,2] w={1,2,3,4,5,6,7,8}>
{ y = MatMul(x, w) best = ArgMax<axis=1, keepdims=0>(y) }"""


class Coarse(Engine):
    """A third party's int8 engine: it rounds float32 outputs to steps, without using this module."""

    dtypes = ("float32", "int8")
    step = 0.0

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._inner = OnnxRuntimeEngine(EngineSpec(spec.ckpt))
        self.inputs, self.outputs = self._inner.inputs, self._inner.outputs
        self.seen = 0

    @property
    def calibration_samples(self) -> int:
        return 0 if self.seen else self.spec.calibration

    def calibrate(self, samples: Iterable[list[Array]]) -> None:
        self.seen = sum(len(call[0]) for call in samples)

    def infer(self, inputs: list[Array]) -> list[Array]:
        y, best = self._inner.infer(inputs)
        return [np.sign(y) * np.ceil(np.abs(y) / self.step) * self.step if self.step else y, best]


class Blind(OnnxRuntimeEngine):
    """It returns zeros for samples of small values, as ranges of large ones do."""

    def infer(self, inputs: list[Array]) -> list[Array]:
        return [np.where(np.abs(y).max(axis=1, keepdims=True) < 10, 0, y) for y in super().infer(inputs)]


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Coarse]]:
    monkeypatch.setattr(registry, "_registered", {})
    register("vendor", Coarse)
    yield Coarse
    Coarse.step = 0.0


def samples(count: int = 16) -> list[list[Array]]:
    return [[call] for call in np.random.default_rng(0).standard_normal((count, 2, 4)).astype(np.float32)]


def opened(path: Path, **options: Any) -> Engine:
    return open_engine("vendor", EngineSpec(path, dtype="int8", **options))


def test_a_third_partys_int8_is_measured_too(vendor: type[Coarse], save_onnx: SaveOnnx) -> None:
    vendor.step = 0.2
    with opened(save_onnx(TWO)) as engine:
        assert engine.agreement is None
        engine.calibrate(iter(samples()))
        assert engine.seen == 32  # type: ignore[attr-defined]
        assert engine.agreement is not None
        assert 0.99 < engine.agreement.cosine < 1
        assert (engine.agreement.output, engine.agreement.samples) == ("y", 32)
        assert engine.describe() == f"Coarse int8; {engine.agreement.text}"
        assert " to float32 on 32 calibration samples" in engine.agreement.text


def test_inaccurate_int8_is_refused_unless_allowed(vendor: type[Coarse], save_onnx: SaveOnnx) -> None:
    vendor.step = 1000.0
    path = save_onnx(TWO)
    engine = opened(path)
    with pytest.raises(ModelError) as caught:
        engine.calibrate(samples())
    text = str(caught.value)
    assert "model.onnx: int8 answers of output 'y' are far from float32's: cosine 0." in text
    assert ", below 0.99; use --dtype float32, or accept it by --min_cosine 0." in text
    assert "\n" not in text
    with pytest.raises(EngineError, match="was used after release"):
        engine(samples()[0][0])
    for least in (0.0, float(text.partition("--min_cosine ")[2].split()[0])):  # what the text says is enough
        with opened(path, min_cosine=least) as engine:
            with pytest.warns(UserWarning, match=r"are far from float32's: cosine 0\.\d{4} .*by the task's metric"):
                engine.calibrate(samples())
            assert len(engine(samples()[0][0])) == 2


def test_a_higher_bound(vendor: type[Coarse], save_onnx: SaveOnnx) -> None:
    vendor.step = 1.0
    with pytest.raises(ModelError, match=r"cosine 0\.99\d\d .* below 0\.9999;"):
        opened(save_onnx(TWO), min_cosine=0.9999).calibrate(samples())


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_invalid_bounds(value: float) -> None:
    with pytest.raises(ConfigError, match=r"min_cosine \S+.*0.*to 1"):
        EngineSpec(Path("m.onnx"), min_cosine=value)


def test_other_dtypes_are_not_measured(vendor: type[Coarse], save_onnx: SaveOnnx) -> None:
    with open_engine("vendor", EngineSpec(save_onnx(TWO), dtype="float32")) as engine:
        engine.calibrate(samples())
        assert engine.agreement is None
        assert engine.describe() == "Coarse float32"


def test_int8_without_a_float32_reference(
    vendor: type[Coarse], save_onnx: SaveOnnx, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(vendor):  # type: ignore[misc, valid-type]
        def __init__(self, spec: EngineSpec) -> None:
            raise ModelError(f"{spec.ckpt} is a plan")

    monkeypatch.setitem(registry._registered, "onnx", Gone)
    with opened(save_onnx(TWO)) as engine:
        with pytest.warns(UserWarning, match=r"int8 .*model\.onnx is a plan"):
            engine.calibrate(samples())
        assert engine.agreement is None


def test_a_failing_engine_reports_the_reason(vendor: type[Coarse], save_onnx: SaveOnnx, monkeypatch: Any) -> None:
    def broken(self: Coarse, inputs: list[Array]) -> list[Array]:
        raise EngineError("it broke")

    monkeypatch.setattr(Coarse, "infer", broken)
    with pytest.raises(EngineError, match="it broke"):
        opened(save_onnx(TWO)).calibrate(samples())


class Shifted(Coarse):
    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.outputs = [replace(self.outputs[0], shape=(None, None)), self.outputs[1]]

    def infer(self, inputs: list[Array]) -> list[Array]:
        y, best = self._inner.infer(inputs)
        return [y[:, :1], best] if inputs[0][0, 0] > 0 else [y, best]


class Nan(Coarse):
    def infer(self, inputs: list[Array]) -> list[Array]:
        y, best = self._inner.infer(inputs)
        y[0, 0] = np.nan
        return [y, best]


def test_another_shape_or_nan_has_cosine_zero(save_onnx: SaveOnnx) -> None:
    spec = EngineSpec(save_onnx(TWO), dtype="int8")
    with OnnxRuntimeEngine(EngineSpec(spec.ckpt)) as reference:
        found = agreements(reference, {"same": Coarse(spec), "shape": Shifted(spec), "nan": Nan(spec)}, samples())
    assert found["same"].cosine == pytest.approx(1)
    assert 0.2 < found["shape"].cosine < 0.95  # calls of another shape count as zeros
    assert found["nan"].cosine == 0


@pytest.mark.parametrize(("width", "least"), [(8, 0.6), (4, 0.99)])
def test_large_samples_do_not_hide_small_ones(width: int, least: float, save_onnx: SaveOnnx) -> None:
    """Every second sample is lost, the others are 1000 times as large; the cosine of four elements is not judged."""
    text = "g (float[N,{0}] x) => (float[N,{0}] y) {{ y = Identity(x) }}"
    sizes = np.array([[1000.0], [1.0]], np.float32)
    calls = [[np.abs(call) * sizes] for call in np.random.default_rng(0).standard_normal((9, 2, width)).astype("f")]
    with OnnxRuntimeEngine(EngineSpec(save_onnx(text.format(width)))) as reference, Blind(reference.spec) as blind:
        found = agreements(reference, {"": blind}, calls)[""].cosine
    assert (found < least) if width >= 8 else (found > least)


def test_integer_outputs_count_only_without_others(save_onnx: SaveOnnx) -> None:
    text = "g (float[N,4] x) => (int64[N] best) { best = ArgMax<axis=1, keepdims=0>(x) }"
    with OnnxRuntimeEngine(EngineSpec(save_onnx(text))) as reference:
        assert agreements(reference, {"a": reference}, samples())["a"] == Agreement(1.0, "best", 32)


def test_a_figure_is_never_rounded_up() -> None:
    assert Agreement(0.98999, "y", 8).text == "cosine 0.9899 to float32 on 8 calibration samples"
    assert Agreement(1.0, "y", 8, "full").text.endswith(
        "cosine 1.0000 to float32 on 8 calibration samples, recipe full"
    )
