"""Warnings of a run: facts are reported, and runs under a second get no advice."""

from __future__ import annotations

import onnx
import pytest
from support import SaveOnnx

from engine import EngineSpec, open_engine
from tecoexec.cli import execute
from tecoexec.measure import CallRecord, Measurement
from tecoexec.report import caveats
from tecoexec.shapes import CardShapes


@pytest.mark.parametrize(("seconds", "advice"), [(0.5, ""), (1.0, "; use a larger batch")])
def test_a_short_run_gets_no_advice(seconds: float, advice: str, save_onnx: SaveOnnx) -> None:
    calls = [CallRecord(float(i), i + 0.01, None, 0.01, None, 0.01) for i in range(10)]
    measured = Measurement(False, False, 4, calls, seconds, 0.02)
    with open_engine("onnx", EngineSpec(save_onnx("g (float[4,4] x) => (float[4,4] y) { y = Relu(x) }"))) as engine:
        said = caveats(measured, engine, CardShapes(((4, 4),), (0,), 4))
    assert said == [f"enqueue bound: queueing a call takes longer than running it{advice}"]


def test_line_breaks_in_input_names_are_escaped(save_onnx: SaveOnnx, capsys: pytest.CaptureFixture[str]) -> None:
    path = save_onnx("g (float[4,4] x) => (float[4,4] y) { y = Relu(x) }")
    model = onnx.load(path)
    model.graph.input[0].name = model.graph.node[0].input[0] = "x\nlatency is 0.01 ms."
    save_onnx(model)
    assert execute([f"--onnx={path}", "--target=onnx", "--iterations=2", "--warmUp=0"]) == 0
    assert capsys.readouterr().out.count("\nlatency is ") == 1
