from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import DIGITS, ROOT

from tecoinfer_modelzoo import interrupts
from utils.pipeline import cli
from utils.pipeline.run import interrupt


def forked(run: Callable[[], None]) -> tuple[int, str]:
    """Return exit code and standard error of a fork that calls ``run``."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writing, 2)
            sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - of this fork alone
            interrupts._message_of.clear()
            interrupts._received.clear()
            interrupt._printed.clear()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            run()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        finally:
            os._exit(99)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    main = SimpleNamespace(__file__=str(ROOT / "example" / "classification" / "digits" / "example_valid.py"))
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


@pytest.mark.usefixtures("ours")
def test_interrupt_during_imports_prints_one_line() -> None:
    def run() -> None:
        interrupts.guard()
        press()

    assert forked(run) == (130, "interrupted\n")


@pytest.mark.usefixtures("ours")
def test_two_simultaneous_interrupts_print_one_line() -> None:
    def say() -> str:
        press()
        return "interrupted\n"

    def run() -> None:
        interrupts.guard()
        interrupts._message_of[:] = [say]
        press()

    assert forked(run) == (130, "interrupted\n")


@pytest.mark.usefixtures("ours")
def test_interrupt_before_and_after_the_work_prints_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def shown() -> Iterator[None]:
        press()
        yield

    def run() -> None:
        interrupts.guard()
        cli.run(lambda: 0)

    with monkeypatch.context() as patch:
        patch.setattr(cli, "safe_streams", shown)
        assert forked(run) == (130, "interrupted\n")
    presses = iter((press, lambda: None))
    monkeypatch.setattr(cli, "ended", lambda: (next(presses)(), interrupts.ended()))
    assert forked(run) == (130, "interrupted\n")


@pytest.mark.usefixtures("ours")
def test_first_and_second_interrupt() -> None:
    def main() -> int:
        try:
            press()
        finally:
            press()  # during the cleanup
        return 0

    assert forked(lambda: cli.run(main)) == (130, "interrupted\n")
    assert forked(lambda: cli.run(lambda: press() or 0)) == (130, "interrupted\n")


@pytest.mark.usefixtures("ours")
def test_interrupt_during_shutdown() -> None:
    def run() -> None:
        try:
            cli.run(lambda: 0)
        except SystemExit:
            press()

    assert forked(run) == (130, "")


@pytest.mark.usefixtures("ours")
def test_interrupt_turned_into_another_error() -> None:
    def main() -> int:
        try:
            press()
        except KeyboardInterrupt as error:
            raise ImportError("numpy could not be imported") from error
        return 0

    assert forked(lambda: cli.run(main)) == (130, "interrupted\n")


@pytest.mark.usefixtures("ours")
def test_interrupt_where_exceptions_are_swallowed() -> None:
    class Ends:
        def __del__(self) -> None:
            press()

    def main() -> int:
        Ends()
        return 0

    assert forked(lambda: cli.run(main)) == (130, "interrupted\n")


def test_other_programs_keep_their_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupts.guard()
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (ROOT / "example/a/b/train.py", True),
        (ROOT / "model_config/check.py", True),
        (ROOT / "engine/sdaa/smi.py", True),
        (Path("/usr/bin/teco"), True),
        (Path("/home/me/example_valid.py"), True),
        (Path("/home/me/service.py"), False),
        (ROOT / "tests/x.py", False),
        (None, False),
    ],
)
def test_our_programs_are_recognized(path: Path | None, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    main = SimpleNamespace(**({} if path is None else {"__file__": str(path)}))
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]
    assert interrupts.is_command() is own


@pytest.mark.parametrize(("module", "own"), [("toolkit.cli", True), ("engine.sdaa.smi", True), ("mine", False)])
def test_modules_being_imported(module: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-m", "x"])
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", module, "x"])
    assert interrupts.is_command() is own


def test_the_line_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt, "_printed", type(interrupt._printed)())
    assert interrupt.unprinted_line() == "interrupted\n"
    assert interrupt.unprinted_line() == ""


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("delay", [0.05, 0.3, 0.6, 1.0])
def test_a_script_in_its_first_second(tmp_path: Path, delay: float, times: int) -> None:
    marker = "import sys, tecoinfer_modelzoo; print('begun', flush=True)\n"
    script = tmp_path / "example_valid.py"
    source = (DIGITS / "example_valid.py").read_text()
    for name in ("digits_dyn.onnx", "data/val"):
        source = source.replace(f'"{name}"', repr(str(DIGITS / name)))
    script.write_text(marker + source)
    words = [sys.executable, str(script), "--target", "onnx", "--resume", str(tmp_path / "kept"), "--batch_size", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "begun\n"
        for _ in range(times):
            time.sleep(delay)
            started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=60)
    assert "Traceback" not in said
    # -SIGINT: Python has already restored the default handler at shutdown; shells report 130 for it, too
    assert started.returncode in (0, 130, -signal.SIGINT)
    assert said.count("interrupted") == (started.returncode == 130)
