from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, RunPython, SaveOnnx

from engine import ConfigError, TargetError, TecoInferError
from tecoexec.cli import execute
from tecoexec.report import milliseconds

ONNX = f"--onnx={DIGITS / 'digits_dyn.onnx'}"
SHAPE = "--input_shapes=16*3*32*32"

AVERAGE = re.compile(r"average inference time is (\s*\d+\.?\d*) ms.")
LATENCY = re.compile(r"latency is (\s*\d+\.?\d*) ms.")


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert execute(argv) == 0
    return capsys.readouterr().out


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize("sync", [(), ("--runSync",)])
@pytest.mark.parametrize("target", ["onnx", "sdaa", "null"])
def test_the_two_lines_for_scripts_occur_once(
    target: str, sync: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, ONNX, SHAPE, f"--target={target}", f"--json={tmp_path / 'r.json'}", *sync)
    figures = read(tmp_path / "r.json")["summary"]
    (average,), (latency,) = AVERAGE.findall(out), LATENCY.findall(out)
    assert float(average) == pytest.approx(figures["average_inference_time_ms"], rel=0.006)
    assert float(latency) == pytest.approx(figures["latency_ms"]["mean"], rel=0.006)
    assert out.count("latency is") == out.count("average inference time is") == 1
    assert out.endswith(f"average inference time is {average} ms.\nlatency is {latency} ms.\n")


def test_simulated_values_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, ONNX, SHAPE, "--fp16")
    for name in ("throughput", "latency", "H2D", "compute", "D2H"):
        assert re.search(rf"^{name} \(simulated\): ", out, re.MULTILINE)
    assert "the next two figures are simulated" in out
    assert re.search(r"^total host wall time: [\d.]+ s, no figure of the device$", out, re.MULTILINE)
    host = run(capsys, ONNX, SHAPE, "--target=onnx")
    assert "simulated" not in host
    assert host.count("not measured on this target") == 2


def test_queued_calls_overlap_their_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = []
    for mode in ("--iterations=40", "--runSync"):
        run(capsys, ONNX, SHAPE, mode, f"--json={tmp_path / 'r.json'}")
        figures.append(read(tmp_path / "r.json")["summary"])
    queued, sync = figures
    phases = sum(sync[key]["mean"] for key in ("h2d_ms", "compute_ms", "d2h_ms"))
    assert sync["latency_ms"]["mean"] == pytest.approx(phases)
    assert sync["average_inference_time_ms"] == pytest.approx(phases)
    assert queued["latency_ms"]["mean"] == pytest.approx(phases)
    assert queued["elapsed_ms"] == pytest.approx(phases + 39 * sync["compute_ms"]["mean"])
    for one in figures:
        assert one["samples_per_second"] == pytest.approx(16 * one["queries_per_second"])
        assert one["queries_per_second"] == pytest.approx(1e3 / one["average_inference_time_ms"])


@pytest.mark.parametrize("how", ["--runSync", "--iterations=30"])
def test_a_paced_card_takes_at_least_its_simulated_time(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for paced in ((), ("--paced",)):
        out = run(capsys, ONNX, SHAPE, "--simulateOnly", how, *paced, f"--json={tmp_path / 'r.json'}")
        data = read(tmp_path / "r.json")
        assert ("paced" in data["device"]) is bool(paced)
        assert ("paced" in out) is bool(paced)
    assert data["summary"]["host_wall_s"] * 1e3 >= data["summary"]["elapsed_ms"]


def test_only_the_card_is_paced(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="--paced is for the simulated card"):
        execute([ONNX, SHAPE, "--target=onnx", "--paced"])


def test_the_batch_is_for_the_whole_card(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 SPA x batch 3," in run(capsys, ONNX, "--input_shapes=input:12x3x32x32", "--simulateOnly")
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    assert "3 SPA x batch 4," in run(capsys, ONNX, "--input_shapes=input:12x3x32x32", "--simulateOnly")
    monkeypatch.setenv("SDAA_VISIBLE_DEVICES", "0,2")
    assert "2 SPA x batch 6," in run(capsys, ONNX, "--input_shapes=input:12x3x32x32", "--simulateOnly")


def test_a_padded_batch_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert "batch 13 is computed as 16, in shards of 4" in run(capsys, ONNX, "--input_shapes=13*3*32*32")
    assert "is computed as" not in run(capsys, ONNX, SHAPE)


def test_a_fixed_model_fills_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert "inputs: input 4x3x32x32 float16" in run(capsys, f"--onnx={DIGITS / 'digits.onnx'}", "--fp16")


def test_more_shards_than_spa_run_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latency = []
    for batch in (4, 8):
        argv = (f"--onnx={DIGITS / 'digits.onnx'}", f"--input_shapes={batch}*3*32*32", f"--json={tmp_path / 'r.json'}")
        run(capsys, *argv, "--runSync", "--simulateOnly")
        latency.append(read(tmp_path / "r.json")["summary"]["compute_ms"]["mean"])
    assert latency[1] == pytest.approx(2 * latency[0])


def test_integers_and_several_inputs(save_onnx: SaveOnnx, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_onnx(
        "g (int64[N, 2] ids, float[N, 3] x, float[3] w) => (float[N, 3] y) "
        "{ axes = Constant<value = int64[1] {1}>() r = ReduceSum<keepdims = 1>(ids, axes) "
        "f = Cast<to = 1>(r) a = Mul(x, w) y = Add(a, f) }"
    )
    argv = (f"--onnx={model}", "--input_shapes=w:3,ids:8x2,x:8x3", "--input_dtype=int32,float32,float16")
    for target in ("sdaa", "onnx"):
        assert "ids 8x2 int64, x 8x3" in run(capsys, *argv, f"--target={target}")


def test_times_of_every_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target, simulated in (("sdaa", True), ("onnx", False)):
        run(capsys, ONNX, SHAPE, f"--target={target}", f"--exportTimes={tmp_path / 't.json'}", "--iterations=7")
        data = read(tmp_path / "t.json")
        assert (data["schema_version"], data["simulated"], len(data["calls"])) == (1, simulated, 7)
        assert data["calls"][0]["start_ms"] == 0
        assert (data["calls"][0]["h2d_ms"] is None) is not simulated
        assert all(call["start_ms"] < call["end_ms"] for call in data["calls"])


def test_times_of_every_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, ONNX, SHAPE, f"--exportProfile={tmp_path / 'p.json'}")
    data = read(tmp_path / "p.json")
    assert (data["schema_version"], data["simulated"], data["shard_size"]) == (1, True, 4)
    assert sum(kernel["time_ms"] for kernel in data["kernels"]) == pytest.approx(data["compute_ms"])
    assert sum(kernel["percentage"] for kernel in data["kernels"]) == pytest.approx(100)


def test_the_trace_has_rows_per_spa_for_copies_and_computing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, ONNX, SHAPE, f"--trace={tmp_path / 't.json'}", "--iterations=6")
    events = read(tmp_path / "t.json")["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == [f"SPA {k} (simulated)" for k in range(4)]
    for pid in names:
        spans = {
            stage: [e for e in events if e["ph"] == "X" and e["pid"] == pid and e["name"] == stage]
            for stage in ("copy in", "compute", "copy out")
        }
        assert [len(found) for found in spans.values()] == [6, 6, 6]  # without the warm-up
        assert len({e["tid"] for found in spans.values() for e in found}) == 3
        first, second = spans["compute"][0], spans["copy in"][1]
        assert second["ts"] + second["dur"] <= first["ts"] + first["dur"]  # copied while the first call was computed
        for found in spans.values():  # no overlap within a row
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(found))
    run(capsys, ONNX, SHAPE, "--target=onnx", f"--trace={tmp_path / 't.json'}", "--iterations=6")
    events = read(tmp_path / "t.json")["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["host (host wall time)"]


def test_a_saved_engine_runs_as_it_was_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "d.tecoengine"
    built = run(capsys, ONNX, SHAPE, "--fp16", f"--saveEngine={saved}")
    loaded = run(capsys, f"--loadEngine={saved}")
    assert "inputs: input 16x3x32x32 float16; precision float16" in loaded
    assert LATENCY.findall(built) == LATENCY.findall(loaded)
    with pytest.raises(TecoInferError, match="input shapes"):
        execute([f"--loadEngine={saved}", "--input_shapes=32*3*32*32"])
    with pytest.raises(ConfigError, match="only for the simulated card"):
        execute([f"--loadEngine={saved}", "--target=onnx"])


def test_device_errors_are_in_the_summary(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TECO_SIM_FAULTS", "lose:spa=1,step=8")
    with pytest.warns(UserWarning, match="DEVICE_LOST"):
        out = run(capsys, ONNX, SHAPE, "--simulateOnly")
    assert "warning: SPA 1 of TECO_AICARD_01: DEVICE_LOST in step 8; its shards go to the 3 SPA left" in out
    assert "warning: computing times vary by" in out


def test_few_iterations_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert "9 iterations are few" in run(capsys, ONNX, SHAPE, "--iterations=9", "--simulateOnly")
    assert "iterations are few" not in run(capsys, ONNX, SHAPE, "--iterations=9", "--simulateOnly", "--runSync")
    assert "iterations are few" not in run(capsys, ONNX, SHAPE, "--simulateOnly")


def test_copies_longer_than_computing_are_reported(save_onnx: SaveOnnx, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_onnx("g (float[N, 1000000] x) => (float[N, 1000000] y) { y = Relu(x) }")
    out = run(capsys, f"--onnx={model}", "--input_shapes=8*1000000", "--simulateOnly")
    assert "copies in take longer than computing" in out
    assert "copies out take longer than computing" in out


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["--input_shapes=16*3*32*32*"], "is not a shape"),
        (["--input_shapes=16*3*32"], "16x3x32 .*3 dimensions, not 4.*takes input:batchx3x32x32"),
        (["--input_shapes=16*3*32*32,1"], "2 shapes for 1 inputs.*takes input:batchx3x32x32"),
        ([], "--input_shapes .*takes input:batchx3x32x32"),
        ([SHAPE, "--iterations=0"], "--iterations 0 must be at least 1"),
        ([SHAPE, "--iterations=-3"], "--iterations -3 must be at least 1"),
        ([SHAPE, "--warmUp=-1"], "--warmUp -1 must be at least 0"),
        ([SHAPE, "--iterations=many"], "invalid int value: 'many'"),
        ([SHAPE, "--input_dtype=int64"], "int64 does not fit.*takes input .float32."),
        ([SHAPE, "--input_dtype=float16,float16"], "does not fit"),
        ([SHAPE, "--target=onnx", "--exportProfile=p.json"], "only for the simulated card"),
        ([SHAPE, "--json=no/such/folder/r.json"], "--json .*does not exist"),
        ([SHAPE, "--loadEngine=x.tecoengine"], "not allowed with argument --onnx"),
        ([SHAPE, "--saveEngine=x.bin"], r"x\.bin .*\.tecoengine"),
        ([SHAPE, "--iteration=3"], "unrecognized arguments"),
        (["--input_shapes=900000000*3*32*32", "--target=null"], "900000000x3x32x32: .*memory"),
    ],
)
def test_errors_are_one_line(argv: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        execute([ONNX, *argv])
    assert "\n" not in str(caught.value)


def test_an_unknown_target_is_reported() -> None:
    with pytest.raises(TargetError, match="did you mean 'sdaa'"):
        execute([ONNX, SHAPE, "--target=sda"])


def test_the_command_exits_with_2_and_one_line(run_python: RunPython) -> None:
    done = run_python("-m", "tecoexec", ONNX, "--input_shapes=__import__('os')")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --input_shapes")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.00591, "5.91"), (0.0000051234, "0.00512"), (12.3456, "12345.60"), (0.0, "0")]
)
def test_milliseconds_are_plain_numbers(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_random_inputs_are_reproducible() -> None:
    from tecoexec.request import Request, open_request, random_inputs

    request = Request(DIGITS / "digits_dyn.onnx", "null", (("", (4, 3, 32, 32)),))
    engine, shapes = open_request(request)
    with engine:
        one, other = (random_inputs(request, engine, shapes)[0] for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one.std() == pytest.approx(1, abs=0.05)
