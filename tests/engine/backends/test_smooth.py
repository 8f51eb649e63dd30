from __future__ import annotations

import numpy as np
import onnx
import pytest
from attention import calls, transformer
from onnx import numpy_helper

from engine.backends.ort import HostSession
from engine.backends.smooth import readers, smooth


def largest(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return the largest magnitude of each channel that is smoothed, by running the model."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    names = list(readers(model))
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = HostSession(shown)
    runs = [session.run(call) for call in calls(8)]
    return {
        name: np.max([np.abs(run[i]).reshape(-1, run[i].shape[-1]).max(0) for run in runs], axis=0)
        for i, name in enumerate(names)
    }


def test_a_smoothed_model_computes_the_same_and_has_no_outliers() -> None:
    model, other = transformer(), transformer()
    before = largest(model)
    assert list(before) == ["h", "seen", "h2", "g0"]  # q, k and v share one input, so one factor
    for node in other.graph.node:
        node.name = node.output[0]
    smooth(other, before)
    onnx.checker.check_model(other, full_check=True)
    x, mask = calls(3, seed=5)[2]
    np.testing.assert_allclose(HostSession(other).run([x, mask])[0], HostSession(model).run([x, mask])[0], atol=1e-4)
    after = largest(other)
    assert list(after) == [f"{name}/smooth" for name in before]
    spread = {name: values.max() / np.median(values) for name, values in {**before, **after}.items()}
    assert spread["h"] > 20
    assert spread["h/smooth"] < spread["h"] / 3


@pytest.mark.parametrize("flag", [0, 1])
def test_gemm_with_and_without_transposed_weights(flag: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N,4] x) => (float[N,3] y, float[N,3] z) {{
        y = Gemm<transB={flag}>(x, w, b)
        z = Gemm<transB={flag}, alpha=0.5>(x, w, b)
    }}"""
    random, model = np.random.default_rng(0), onnx.parser.parse_model(text)
    weights = random.standard_normal((3, 4) if flag else (4, 3)).astype(np.float32)
    for name, array in {"w": weights, "b": np.ones(3, np.float32)}.items():  # weights that two nodes share
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for index, node in enumerate(model.graph.node):
        node.name = f"n{index}"
    x = random.standard_normal((8, 4)).astype(np.float32) * np.array([1, 100, 0, 1], np.float32)
    want = HostSession(model).run([x])
    smooth(model, {"x": np.abs(x).max(0)})
    for got, wanted in zip(HostSession(model).run([x]), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


def test_activations_that_are_not_smoothed() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[4,N] x, float[4,4] z) => (float[N,4] a, float[4,N] b, float[4,4] c) <float[4,4] w =
        {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}>
    { a = Gemm<transA=1>(x, w) b = MatMul(w, x) c = MatMul(z, z) }"""
    assert not readers(onnx.parser.parse_model(text))
