from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, SaveOnnx

from engine import ConfigError, DeviceOutOfMemory, EngineSpec
from engine.sdaa import SdaaEngine
from tecoexec.cli import execute
from tecoexec.plan.arrivals import LEAST, read_arrivals
from tecoexec.plan.page import chart, ticks
from tecoexec.plan.search import Load
from tecoexec.plan.settings import duration

ONNX = f"--onnx={DIGITS / 'digits_dyn.onnx'}"
SHAPE = "--input_shapes=16*3*32*32"
FEW = "--requests=2000"


def plan(tmp_path: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    code = execute([ONNX, SHAPE, "--fp16", "--plan", FEW, *argv, f"--json={tmp_path / 'p.json'}"])
    data: dict[str, Any] = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    return code, data


def shard_seconds(batch: int) -> float:
    """Return the simulated seconds of a shard, from the engine itself."""
    spec = EngineSpec(
        DIGITS / "digits_dyn.onnx",
        batch_size=4 * batch,
        input_size=((batch, 3, 32, 32),),
        dtype="float16",
        simulate_only=True,
    )
    with SdaaEngine(spec) as engine:
        return engine.cost.copy_in + engine.cost.compute + engine.cost.copy_out


def test_a_plan_and_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "p.html"
    code, data = plan(tmp_path, "--qps=100000", "--p99=3ms", "--max_batch=8", f"--html={page}")
    assert code == 0
    assert (data["schema_version"], data["kind"], data["simulated"], data["p99_bound_ms"]) == (
        1,
        "tecoexec_plan",
        True,
        3,
    )
    (found,) = data["plans"]
    assert found["reachable"] is True
    assert found["servers"] == 4 * found["cards"]
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= 3
    assert 0 < found["utilisation"] <= 1
    assert found["highest_qps"] > 100_000
    assert [entry["batch"] for entry in data["curve"]["batches"]] == [1, 2, 4, 8]
    for entry in data["curve"]["batches"]:
        assert entry["mean_ms"] == pytest.approx(1e3 * shard_seconds(entry["batch"]))
    memory = {entry["batch"]: entry["memory"] for entry in data["curve"]["batches"]}
    assert found["memory_per_server"] == memory[found["max_batch"]]
    assert found["memory_share"] == pytest.approx(found["memory_per_server"] / data["curve"]["memory_per_server"])
    out = capsys.readouterr().out
    assert f"cards needed: {found['cards']}" in out
    assert "=== plan (simulated) ===" in out
    text = page.read_text(encoding="utf-8")
    HTMLParser().feed(text)
    assert "(simulated)" in text
    assert text.count("<polyline") == 2
    assert f"<td>{found['cards']}</td>" in text


def test_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan(tmp_path, "--qps=1000", "--p99=3ms", "--max_batch=2", f"--plot={tmp_path / 'p.png'}")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = plan(tmp_path, "--sweep_qps=5000:205000:100000", "--p99=2ms", "--max_batch=4")
    assert code == 0
    assert [one["qps"] for one in data["plans"]] == [5000, 105_000, 205_000]
    cards = [one["cards"] for one in data["plans"]]
    assert cards == sorted(cards)
    assert len(re.findall(r"^(?:5000|105000|205000) ", capsys.readouterr().out, re.MULTILINE)) == 3


def test_the_number_of_spa_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ("--qps=30000", "--p99=3ms", "--max_batch=1")
    cards = plan(tmp_path, *argv)[1]["plans"][0]["cards"]
    monkeypatch.setenv("MAX_ENGINE_NUMS", "1")
    alone = plan(tmp_path, *argv)[1]["plans"][0]["cards"]
    assert 3 * cards <= alone <= 4 * cards


def test_a_rate_that_no_number_of_cards_reaches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv, words in (
        (("--qps=10", "--p99=0.1ms"), "one request alone takes"),
        (("--qps=100000", "--p99=3ms", "--max_cards=1", "--max_batch=1"), "keeps 15 cards busy"),
    ):
        code, data = plan(tmp_path, *argv)
        captured = capsys.readouterr()
        assert code == 1
        assert captured.out == ""
        assert captured.err.strip().count("\n") == 0
        assert words in captured.err
        assert data["plans"][0]["reachable"] is False
        assert words in data["plans"][0]["reason"]


def test_recorded_arrivals(tmp_path: Path) -> None:
    file = tmp_path / "arrivals.txt"
    times = 1000 + np.cumsum(np.random.default_rng(5).exponential(1e-3, 500))
    file.write_text("# seconds\n" + "".join(f"{one:.6f}\n" for one in times))
    argv = [ONNX, SHAPE, "--fp16", "--plan", f"--arrivals={file}", "--p99=5ms", "--max_batch=2"]
    assert execute([*argv, f"--json={tmp_path / 'r.json'}"]) == 0
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["arrivals"]["kind"] == "recorded"
    assert data["plans"][0]["qps"] == pytest.approx(499 / (times[-1] - times[0]), rel=1e-3)
    assert execute([*argv, "--qps=100000", f"--json={tmp_path / 'r.json'}"]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["plans"][0]["cards"] > data["plans"][0]["cards"]


def test_another_target_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = plan(tmp_path, "--target=null", "--qps=5", "--p99=60s", "--max_batch=2")
    assert code == 0
    assert data["simulated"] is False
    assert data["curve"]["servers_per_card"] == 1
    assert all(entry["measurements"] > 1 and entry["memory"] is None for entry in data["curve"]["batches"])
    out = capsys.readouterr().out
    assert "hosts needed: 1" in out
    assert "(simulated)" not in out


def test_a_fixed_batch_is_the_only_one(tmp_path: Path) -> None:
    argv = [f"--onnx={DIGITS / 'digits.onnx'}", "--fp16", "--plan", "--qps=100", "--p99=9ms", FEW]
    assert execute([*argv, f"--json={tmp_path / 'p.json'}"]) == 0
    assert [one["batch"] for one in json.loads((tmp_path / "p.json").read_text())["curve"]["batches"]] == [1]


def card_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_mb: float) -> None:
    from engine.sdaa import CARDS

    text = (CARDS / "t1.yaml").read_text(encoding="utf-8")
    text, count = re.subn(r"(memory_mb:\s*\{?\s*(?:\n\s*)?value:\s*)[\d.]+", rf"\g<1>{memory_mb}", text, count=1)
    assert count == 1
    path = tmp_path / f"card_{memory_mb}.yaml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("TECO_SIM_CARD", str(path))


def test_batches_that_do_not_fit_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card_of(tmp_path, monkeypatch, 0.3)
    code, data = plan(tmp_path, "--qps=100", "--p99=9ms", "--max_batch=64")
    assert code == 0
    assert max(entry["batch"] for entry in data["curve"]["batches"]) < 64
    assert "do not fit" in data["curve"]["skipped"]
    assert "warning: batch" in capsys.readouterr().out
    card_of(tmp_path, monkeypatch, 0.01)
    with pytest.raises(DeviceOutOfMemory):
        plan(tmp_path, "--qps=100", "--p99=9ms")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--qps=5",), "--p99"),
        (("--p99=5ms",), "needs a rate"),
        (("--qps=-5", "--p99=5ms"), "--qps -5 must be above 0"),
        (("--qps=nan", "--p99=5ms"), "--qps nan"),
        (("--qps=5", "--p99=0"), "--p99 '0' must be a time above 0"),
        (("--qps=5", "--p99=-5ms"), "--p99"),
        (("--qps=5", "--p99=soon"), "--p99 'soon'"),
        (("--qps=5", "--p99=1e999s"), "--p99"),
        (("--qps=5", "--p99=5e-ms"), "--p99"),
        (("--qps=5", "--sweep_qps=5", "--p99=5ms"), "exclude each other"),
        (("--sweep_qps=5,x", "--p99=5ms"), "--sweep_qps"),
        (("--sweep_qps=5:1:1", "--p99=5ms"), "--sweep_qps"),
        (("--sweep_qps=1:5:0", "--p99=5ms"), "--sweep_qps"),
        (("--sweep_qps=1:5", "--p99=5ms"), "--sweep_qps"),
        (("--sweep_qps=1:1e6:0.001", "--p99=5ms"), "at most 1000"),
        (("--sweep_qps=nan,5", "--p99=5ms"), "--sweep_qps"),
        (("--sweep_qps=", "--p99=5ms"), "--sweep_qps"),
        (("--qps=5", "--p99=5ms", "--requests=10"), "--requests 10 must be from 1000"),
        (("--qps=5", "--p99=5ms", "--max_cards=0"), "--max_cards 0"),
        (("--qps=5", "--p99=5ms", "--max_batch=0"), "--max_batch 0"),
        (("--qps=5", "--p99=5ms", "--queue_delay=-1"), "--queue_delay -1"),
        (("--qps=5", "--p99=5ms", "--arrivals=nowhere.txt"), "nowhere.txt"),
        (("--qps=5", "--p99=5ms", "--html=/nowhere/p.html"), "--html"),
        (("--qps=5", "--p99=5ms", "--trace=t.json"), "--trace does not belong to --plan"),
        (("--qps=5", "--p99=5ms", "--target=unknown"), "unknown"),
    ],
)
def test_wrong_flags_are_one_line(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        execute([ONNX, SHAPE, "--plan", *argv])
    assert "\n" not in str(raised.value)


def test_flags_of_a_plan_need_it() -> None:
    with pytest.raises(ConfigError, match="--qps needs --plan; add it"):
        execute([ONNX, SHAPE, "--qps=5"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n2\nthree\n", "line 3: 'three' is not a time"),
        ("1\nnan\n", "line 2"),
        ("1\ninf\n", "line 2"),
        ("1\n1e308\n", "line 2"),
        ("1\n2\n1.5\n", "line 3: 1.5 is earlier than 2"),
        ("", f"has 0 times; a 99th percentile needs {LEAST}"),
        ("1\n" * LEAST, "all times are equal"),
        (b"\xff\xfe\n", "cannot be read"),
    ],
)
def test_wrong_arrivals_are_one_line(text: str | bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "arrivals.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=words) as raised:
        read_arrivals(file)
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_folder_is_not_a_file_of_arrivals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        read_arrivals(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("50", 0.05), ("0.05s", 0.05), ("1.5 s", 1.5), ("200us", 2e-4), ("2e1ms", 0.02)],
)
def test_times(text: str, seconds: float) -> None:
    assert duration("--p99", text) == pytest.approx(seconds)


def test_axes_of_the_chart() -> None:
    assert ticks(0.5, 60) == [0.5, 1, 2, 5, 10, 20, 50]
    assert ticks(0.5, 2e5) == [1, 10, 100, 1000, 10_000, 100_000]
    assert ticks(3.1, 3.3) == [3.1, 3.3]
    drawn = chart([Load(10, 0.001, 0.002, 0.1), Load(20, 0.001, 0.004, 0.9)], 0.003)
    numbers = [float(n) for points in re.findall(r'points="([^"]+)"', drawn) for n in re.split("[ ,]", points)]
    assert all(0 <= number <= 640 for number in numbers)


def test_a_model_without_a_batch_has_one_request_a_call(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    model = save_onnx("g (float x) => (float y) { y = Relu(x) }")
    argv = [f"--onnx={model}", "--plan", "--qps=100", "--p99=9ms", FEW, f"--json={tmp_path / 'p.json'}"]
    assert execute(argv) == 0
    assert [one["batch"] for one in json.loads((tmp_path / "p.json").read_text())["curve"]["batches"]] == [1]
