from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from publishing import MB, publishing
from support import ROOT, RunPython, SaveOnnx

from engine.sdaa import smi, status

# The specification's table (teco-smi on a T1), without its date, and with what is simulated and what is not by name:
# `Health      Volatile` and `SPE-Util` are its own words.
SPECIFIED = """\
+-----------------------------------------------------------------------------+
|  TCML: 1.10.0        SDAADriver: 1.1.2b1        SDAARuntime: 1.1.2b0        |
|-------------------------------+----------------------+----------------------|
| Index  Name                   | Bus-Id               | Health     Host busy |
|        Temp          Pwr Usage|          Memory-Usage| SPE-Util (simulated) |
|=============================================================================|
|   0    TECO_AICARD_01         | 00000000:01:00.0     | OK                0% |
|        35C                90W |        0MB / 15296MB |                   0% |
|-------------------------------+----------------------+----------------------|
|   1    TECO_AICARD_01         | 00000000:01:00.0     | OK                0% |
|        35C                90W |      165MB / 15296MB |                   0% |
|-------------------------------+----------------------+----------------------|
|   2    TECO_AICARD_01         | 00000000:01:00.0     | OK                0% |
|        35C                90W |      165MB / 15296MB |                   0% |
|-------------------------------+----------------------+----------------------|
|   3    TECO_AICARD_01         | 00000000:01:00.0     | OK                0% |
|        35C                90W |      165MB / 15296MB |                   0% |
+-------------------------------+----------------------+----------------------+
+-----------------------------------------------------------------------------+
| Processes:                                                                  |
|  Tcaicard     PID      Process name                            Memory Usage |
|=============================================================================|
|     1       76262      python3.8                                     165 MB |
|     2       76263      python3.8                                     165 MB |
|     3       76264      python3.8                                     165 MB |
+-----------------------------------------------------------------------------+
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TECO_SIM_CARDS", "TECO_SIM_CARD", "_TECO_SMI_HANDED_OVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path / "devices"))
    return tmp_path / "devices"


def said(devices: dict[int, tuple[Any, ...]], pid: int, name: str = "python3.8") -> status.ProcessStatus:
    statuses = tuple(status.DeviceStatus(index, *values) for index, values in devices.items())
    return status.ProcessStatus(pid, name, statuses, 0.0)


def show(monkeypatch: pytest.MonkeyPatch, *processes: status.ProcessStatus) -> tuple[list[str], dict[str, Any]]:
    """Return the table's lines and the JSON object for what these processes said."""
    monkeypatch.setattr(smi, "read_all", lambda: list(processes))
    shown = smi.snapshot()
    return smi.table(shown).splitlines(), smi.as_json(shown)


def test_the_table_is_the_specifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "zoo_version", lambda: "0.1.0")
    lines, _ = show(monkeypatch, *(said({index: ("OK", 165 * MB, 0.0)}, 76261 + index) for index in range(1, 4)))
    expected = SPECIFIED.replace("35C                90W", "N/A                N/A").splitlines()
    expected[1] = "|  SDAADriver: simulated      SDAARuntime: simulated      Simulator: 0.1.0    |"
    assert time.strptime(lines[0])
    assert lines[1:] == expected


def test_idle_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_SIM_CARDS", "2")
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    lines, data = show(monkeypatch)
    assert [device["bus_id"] for device in data["devices"]] == ["00000000:01:00.0"] * 3 + ["00000000:02:00.0"] * 3
    assert [device["index"] for device in data["devices"]] == list(range(6))
    assert data["processes"] == []
    assert sum("| OK " in line for line in lines) == 6
    assert lines[-2] == f"|{'  No running processes found':<77}|"


def test_processes_on_one_device_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, data = show(
        monkeypatch,
        said({0: ("OK", 100 * MB, 0.75), 1: ("OK", MB, 0.25), 2: ("OK", 0, 0.0)}, 5),
        said({1: ("OK", 2 * MB, 0.0)}, 5),
        said({0: ("HEARTBEAT_ERROR", 1, 0.5), 3: ("DEVICE_LOST", 0, 0.0)}, 7, "tecoexec"),
        said({3: ("HEARTBEAT_ERROR", 0, 0.0)}, 9),
    )
    assert [device["health"] for device in data["devices"]] == ["HEARTBEAT_ERROR", "OK", "OK", "DEVICE_LOST"]
    assert [device["memory_used_bytes"] for device in data["devices"]] == [100 * MB + 1, 3 * MB, 0, 0]
    assert [device["spe_utilisation"] for device in data["devices"]] == [1.0, 0.25, 0.0, None]
    assert [(p["index"], p["pid"], p["memory_used_bytes"]) for p in data["processes"]] == [
        (0, 5, 100 * MB),
        (0, 7, 1),
        (1, 5, 3 * MB),
    ]
    assert [device["host_busy"] for device in data["devices"]] == [0.0, 0.0, 0.0, None]
    assert "|        N/A                N/A |      101MB / 15296MB |                 100% |" in lines
    assert "|        N/A                N/A |        0MB / 15296MB |                  N/A |" in lines
    assert "|     0           7      tecoexec                                        1 MB |" in lines


def test_host_time_and_simulated_time_are_both_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, data = show(
        monkeypatch,
        said({0: ("OK", MB, 0.001, 0.75), 1: ("HEARTBEAT_ERROR", 0, 0.0, 0.004), 2: ("OK", 0, 0.0, 0.5)}, 5),
        said({0: ("OK", MB, 0.0, 0.5)}, 6),
    )
    assert [(d["spe_utilisation"], d["host_busy"]) for d in data["devices"][:3]] == [(0.001, 1.0), (0, 0.004), (0, 0.5)]
    assert [line[-24:] for line in lines if "TECO_AICARD" in line] == [
        "| OK              100% |",
        "| HEARTBEAT_ERROR   1% |",
        "| OK               50% |",
        "| OK                0% |",
    ]
    assert "|        N/A                N/A |        2MB / 15296MB |                   1% |" in lines
    assert [(p["index"], p["pid"]) for p in data["processes"]] == [(0, 5), (0, 6), (1, 5), (2, 5)]


def test_a_device_beyond_the_configured_ones_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    _, data = show(monkeypatch, said({6: ("OK", MB, 0.0)}, 5))
    assert [device["bus_id"] for device in data["devices"]] == ["00000000:01:00.0"] * 4 + ["00000000:02:00.0"] * 3


def test_lines_are_aligned_for_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "engine" / "sdaa" / "t1.yaml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^name:.*$", 'name: "A card whose name is far too long 加速卡"', text)
    (tmp_path / "long.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("TECO_SIM_CARD", str(tmp_path / "long.yaml"))
    monkeypatch.setattr(smi, "zoo_version", lambda: "0.1.0.dev123+g" + "0" * 40)
    lines, _ = show(
        monkeypatch,
        said({0: ("HEARTBEAT_ERROR", 2**50, 1.0), 1000: ("DEVICE_LOST", 2**59, 1.0)}, 4194304, "进程\x1b[31m\n" * 20),
    )
    assert {len(line) for line in lines[1:]} == {79}
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert all(line[0] in "|+" and line[-1] in "|+" for line in lines[1:])


# -------------------------------------------------------------------------------------------------------- command line


ENGINE = """
import sys
from pathlib import Path
import numpy as np
from engine import EngineSpec, open_engine
with open_engine("sdaa", EngineSpec(Path(sys.argv[1]), batch_size=int(sys.argv[2]))) as engine:
    print("open", flush=True)
    while True:
        engine(np.ones((int(sys.argv[2]), 64), np.float32))
"""
LONG = """g (float[N,64] x) => (float[N,64] y) <int64 n = {1000000000}, bool go = {1}, float half = {0.5}> {
 y = Loop(n, go, x) <body = b (int64 i, bool g, float[N,64] v) => (bool h, float[N,64] w)
  { h = Identity(g) s = Mul(v, half) w = Tanh(s) }> }"""
"""One call takes longer than the test waits."""
SHORT = "g (float[N,64] x) => (float[N,64] y) { y = Tanh(x) }"


@pytest.mark.slow
@pytest.mark.parametrize("text", [SHORT, LONG], ids=["short calls", "one long call"])
def test_an_engine_that_computes_is_shown_busy(
    text: str, folder: Path, save_onnx: SaveOnnx, run_python: RunPython
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", ENGINE, str(save_onnx(text)), "8"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TECO_SMI_DIR": str(folder)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as busy:
        try:
            assert busy.stdout is not None
            assert busy.stdout.readline() == "open\n"
            until = time.monotonic() + 60
            while not all(map(_busy, shown := _devices(run_python))) and time.monotonic() < until:
                time.sleep(0.1)
            if text == LONG:  # it says nothing more until the call is done
                file = next(folder.glob("*.json"))
                file.write_text(re.sub(r'"updated": [0-9.]+', '"updated": 1.0', file.read_text()))
                shown = _devices(run_python)
            for device in shown:
                assert device["host_busy"] > 0
                assert 0 < device["spe_utilisation"] <= 1
        finally:
            busy.kill()
    assert [device["host_busy"] for device in _devices(run_python)] == [0.0] * 4


def _devices(run_python: RunPython) -> list[dict[str, Any]]:
    done = run_python("-m", "engine.sdaa.smi", "--json", TECO_SMI_DIR=os.environ["TECO_SMI_DIR"])
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)["devices"]
    return found


def _busy(device: dict[str, Any]) -> bool:
    return bool(device["host_busy"] > 0 and device["spe_utilisation"] > 0)


@pytest.mark.slow
def test_live_across_processes(folder: Path, run_python: RunPython) -> None:
    def data() -> dict[str, Any]:
        done = run_python("-m", "engine.sdaa.smi", "--json", TECO_SMI_DIR=str(folder))
        assert (done.returncode, done.stderr) == (0, "")
        loaded: dict[str, Any] = json.loads(done.stdout)
        return loaded

    with publishing(folder) as first, publishing(folder) as second:
        first.publish((0, "OK", 3 * MB, 0.5), (1, "OK", 3 * MB, 0.5))
        second.publish((0, "DEVICE_LOST", MB, 0.0))
        both = data()
        assert (both["schema_version"], both["simulated"]) == (1, True)
        assert [d["health"] for d in both["devices"]] == ["DEVICE_LOST", "OK", "OK", "OK"]
        assert {(p["index"], p["pid"]) for p in both["processes"]} == {(0, first.pid), (1, first.pid), (0, second.pid)}
        assert {p["name"] for p in both["processes"]} == {Path(f"/proc/{first.pid}/comm").read_text().strip()}
        second.kill()
        left = data()
        assert [d["health"] for d in left["devices"]] == ["OK"] * 4
        assert {(p["index"], p["pid"]) for p in left["processes"]} == {(0, first.pid), (1, first.pid)}


def start(*args: str, **kwargs: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("PYTHONUNBUFFERED", None)
    command = [sys.executable, "-m", "engine.sdaa.smi", *args]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, **kwargs)


def test_watch_under_a_pipe_shows_change_and_ends_with_ctrl_c(folder: Path) -> None:
    with publishing(folder) as child, start("--watch", "0.1", "--json", stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["processes"] == []
        child.publish((2, "OK", MB, 1.0))
        until = time.monotonic() + 10
        while not (shown := json.loads(watching.stdout.readline()))["processes"] and time.monotonic() < until:
            pass
        assert [(p["index"], p["pid"]) for p in shown["processes"]] == [(2, child.pid)]
        child.kill()
        while (shown := json.loads(watching.stdout.readline()))["processes"] and time.monotonic() < until:
            pass
        assert shown["processes"] == []
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=10)
        assert (watching.returncode, errors) == (0, "")


def test_watch_under_a_pipe_prints_one_table_after_the_other() -> None:
    with start("--watch", "0.1", stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        tables = 0
        while tables < 2:
            line = watching.stdout.readline()
            assert "\x1b" not in line
            tables += line.startswith("|  No running")
        watching.stdout.close()  # as `head` does
        assert watching.stderr is not None
        assert (watching.stderr.read(), watching.wait(10)) == ("", 0)


def test_watch_in_a_terminal_redraws_in_place() -> None:
    master, slave = os.openpty()
    with start("--watch", "0.1", stdout=slave) as watching:
        os.close(slave)
        seen = b""
        while seen.count(b"\x1b[H") < 3:
            seen += os.read(master, 4096)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0
    os.close(master)
    assert seen.startswith(b"\x1b[H")
    assert b"\x1b[K\r\n" in seen
    assert b"\x1b[J" in seen


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_watch_takes_a_time_only(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        smi.main(["--simulated", f"--watch={seconds}"])
    assert caught.value.code == 2
    assert f"{seconds!r} is not a number of seconds from 0.1 to 86400" in capsys.readouterr().err


def test_invalid_settings_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    cases = {"TECO_SIM_CARDS": "none", "MAX_ENGINE_NUMS": "9", "TECO_SIM_CARD": "t9", "TECO_SMI_DIR": tmp_path / "file"}
    for name, value in cases.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, str(value))
            assert smi.main(["--simulated"]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.startswith("teco-smi: ")
        assert str(value) in err


# --------------------------------------------------------------------------------------------------- the vendor's own

VENDOR = '#!/bin/sh\necho "vendor: $*"\nexit 3\n'


def command(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "teco-smi").write_text(text)
    (folder / "teco-smi").chmod(0o755)
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Return a folder with our command, as pip installs it."""
    text = f"#!{sys.executable}\nimport sys\nfrom tecoinfer_modelzoo.commands import teco_smi\nsys.exit(teco_smi())\n"
    return command(tmp_path / "ours", text)


def call(path: list[Path], *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]])}
    found = str(path[0] / "teco-smi")
    return subprocess.run([found, *args], env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.slow
def test_the_command_of_the_vendor_takes_precedence(ours: Path, tmp_path: Path) -> None:
    vendor = command(tmp_path / "vendor", VENDOR)
    done = call([ours, vendor], "-x", "two words")
    assert (done.returncode, done.stdout) == (3, "vendor: -x two words\n")
    assert done.stderr == f"teco-smi: handing over to {vendor}/teco-smi (--simulated shows the simulated cards)\n"
    done = call([ours, vendor], "--simulated")
    assert (done.returncode, done.stderr) == (0, "")
    assert "TECO_AICARD_01" in done.stdout


def test_our_command_is_distinguished_from_the_vendors(ours: Path, tmp_path: Path) -> None:
    other = command(tmp_path / "other", (ours / "teco-smi").read_text())  # in another environment
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "teco-smi").symlink_to(ours / "teco-smi")
    done = call([linked, ours, other])
    assert (done.returncode, done.stderr) == (0, "")
    assert "No running processes found" in done.stdout


def test_a_wrapper_around_ours_does_not_recurse(ours: Path, tmp_path: Path) -> None:
    wrapper = command(tmp_path / "wrapper", f'#!/bin/sh\nexec {ours / "teco-smi"} "$@"\n')
    done = call([wrapper], "--json")
    assert done.returncode == 0
    assert done.stderr.count("handing over") <= 1
    assert json.loads(done.stdout)["simulated"] is True


def test_a_vendors_command_that_cannot_be_started(ours: Path, tmp_path: Path) -> None:
    broken = command(tmp_path / "broken", "#!/no/such/interpreter\n")
    done = call([ours, broken])
    assert done.returncode == 0
    assert "cannot be started (No such file or directory); showing the simulated cards" in done.stderr
    assert "TECO_AICARD_01" in done.stdout
