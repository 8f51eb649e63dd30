from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from supervised import computing, ended, is_alive, save_dividing, save_endless, teco, wait_for
from support import DIGITS

from toolkit.command_table import COMMANDS, HIDDEN, SUPERVISED, TRAIN

TOOLS = ("compare", "overflow", "profile", "dump", "fix")


def words_of(tool: str, model: Path) -> tuple[object, ...]:
    """Return the arguments of a tool that runs a model on ONNX Runtime."""
    if tool == "dump":
        return "dump", "full", model, "--out", model.with_name("values")
    if tool == "fix":
        data = model.with_name("data.npz")
        np.savez(data, x=np.ones((4, 4), np.float32))
        return "fix", model, "--data", data, "--metric", "close"
    return (tool, model, "--target", "onnx") if tool == "profile" else (tool, model)


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    return save_endless(tmp_path / "endless.onnx")


@pytest.fixture
def dividing(tmp_path: Path) -> Path:
    return save_dividing(tmp_path / "dividing.onnx")


def quick(*tools: str) -> list[object]:
    """Return all tools; those not listed here are slow tests."""
    return [tool if tool in tools else pytest.param(tool, marks=(pytest.mark.slow, pytest.mark.long)) for tool in TOOLS]


def check_line(message: str, *parts: str) -> None:
    """Check that the last line contains the parts, without other errors and traceback."""
    assert message.count("error: ") == 1
    assert "Traceback" not in message
    assert all(part in message.splitlines()[-1] for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("tool", quick("compare"))
def test_time_limit_ends_native_call(tool: str, endless: Path) -> None:
    with teco(*words_of(tool, endless), "--time_limit", 3) as process:
        code, message = ended(process)
    assert code == 2
    check_line(message, "endless.onnx", "--time_limit")


@pytest.mark.parametrize("tool", quick("overflow"))
def test_native_crash_is_one_line(tool: str, dividing: Path) -> None:
    with teco(*words_of(tool, dividing)) as process:
        code, message = ended(process)
    assert code == 2
    check_line(message, "dividing.onnx", "SIGFPE")


SENT: dict[str, Callable[[int, int], None]] = {"group": os.killpg, "parent": os.kill}


@pytest.mark.slow
@pytest.mark.parametrize("to", SENT)
@pytest.mark.parametrize("tool", quick("compare"))
def test_ctrl_c_in_a_native_call_is_one_line(tool: str, to: str, endless: Path) -> None:
    with teco(*words_of(tool, endless)) as process:
        child = computing(process)
        SENT[to](process.pid, signal.SIGINT)
        assert ended(process) == (130, "interrupted\n")
    assert not is_alive(child)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("to", SENT)
def test_a_second_ctrl_c_is_one_line_too(to: str, endless: Path) -> None:
    with teco("compare", endless) as process:
        child = computing(process)
        SENT[to](process.pid, signal.SIGINT)
        SENT[to](process.pid, signal.SIGINT)
        assert ended(process) == (130, "interrupted\n")
    assert not is_alive(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
@pytest.mark.parametrize("to", ["parent", pytest.param("group", marks=pytest.mark.slow)])
def test_ended_tool_reports_signal(number: signal.Signals, to: str, endless: Path) -> None:
    with teco("compare", endless) as process:
        child = computing(process)
        SENT[to](process.pid, number)
        assert ended(process) == (-number, "")
    assert not is_alive(child)


@pytest.mark.slow
@pytest.mark.long
def test_child_ends_with_its_parent(endless: Path) -> None:
    with teco("overflow", endless) as process:
        child = computing(process)
        process.kill()
        process.wait()
        wait_for(lambda: not is_alive(child))


@pytest.mark.slow
@pytest.mark.long
def test_hanging_call_is_reported_once(endless: Path) -> None:
    with teco("compare", endless, "--time_limit", 900) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "interrupted\n")
    assert first.startswith("warning: ")
    assert "endless.onnx" in first
    assert "--time_limit" in first


def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    out = tmp_path / "found.json"
    with teco("profile", DIGITS / "digits_dyn.onnx", "--json", out, stdout=writing) as process:
        os.close(writing)
        assert ended(process) == (0, "")
    assert json.loads(out.read_text())["rows"]


@pytest.mark.slow
@pytest.mark.long
def test_memory_limit_ends_tool(endless: Path) -> None:
    with teco("compare", endless, TECO_MEMORY_LIMIT="0.01") as process:
        code, message = ended(process)
    assert code == 2
    check_line(message, "endless.onnx", "--memory_limit")


@pytest.mark.slow
@pytest.mark.long
def test_stop_and_continue(endless: Path) -> None:
    with teco("overflow", endless) as process:
        child = computing(process)
        before = Path(f"/proc/{child}/stat")
        os.kill(child, signal.SIGSTOP)  # a session without a shell: nothing may hang
        os.kill(process.pid, signal.SIGINT)
        assert ended(process) == (130, "interrupted\n")
    assert not before.exists() or not is_alive(child)


def test_invalid_limit_flag(dividing: Path) -> None:
    with teco("info", dividing, "--time_limit=soon") as process:
        code, message = ended(process)
    assert code == 2
    check_line(message, "--time_limit")


def test_invalid_limit_variable(dividing: Path) -> None:
    with teco("info", dividing, TECO_MEMORY_LIMIT="much") as process:
        code, message = ended(process)
    assert code == 2
    check_line(message, "TECO_MEMORY_LIMIT")


def test_every_supervised_command_is_in_the_table() -> None:
    training = {f"train {name}" for name in TRAIN}
    assert {*COMMANDS, *HIDDEN, *training} > SUPERVISED
    assert "check" not in SUPERVISED  # it has a supervisor of its own for each step


@pytest.mark.slow
@pytest.mark.long
def test_command_is_shown_without_control_characters(tmp_path: Path) -> None:
    model = save_dividing(tmp_path / "a\x1b[31m\nb.onnx")
    with teco("overflow", model) as process:
        code, message = ended(process)
    assert code == 2
    assert "\x1b" not in message
    check_line(message, "SIGFPE", "b.onnx")


@pytest.mark.slow
@pytest.mark.long
def test_parent_with_ignored_sigchld_waits(dividing: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a child inherits it
    try:
        with teco("info", dividing.with_name("missing.onnx")) as process:
            message = process.stderr.read() if process.stderr is not None else ""
            signal.signal(signal.SIGCHLD, before)
            assert message.count("error: ") == 1
            assert "exit code" not in message
    finally:
        signal.signal(signal.SIGCHLD, before)
