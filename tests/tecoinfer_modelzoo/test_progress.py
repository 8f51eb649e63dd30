"""Progress bars of long tools appear on terminals only, without escape sequences as text."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, SaveOnnx

from tecoinfer_modelzoo.progress import progress
from utils.pipeline.report.safe_stream import SafeStream

CHAIN = """net (float[2, 100000] x) => (float[2, 100000] y) {
    a = Sigmoid(x)  b = Mul(x, a)  c = Transpose<perm = [1, 0]>(b)  d = Transpose<perm = [1, 0]>(c)  y = Neg(d)
}"""


def run(*words: object, terminal: bool) -> tuple[str, str]:
    """Return standard output and standard error (optionally a terminal) of a ``teco`` command."""
    master, slave = os.openpty() if terminal else os.pipe()
    if terminal:  # without a size tqdm draws nothing
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-m", "toolkit.cli", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=slave, text=True) as process:
        os.close(slave)
        said = b""
        try:
            while piece := os.read(master, 65536):
                said += piece
        except OSError as error:
            if error.errno != errno.EIO:  # EIO is the end of file of a terminal
                raise
        os.close(master)
        assert process.stdout is not None
        printed = process.stdout.read()
    assert process.returncode in (0, 1), said
    return printed, said.decode()


@pytest.fixture
def model(save_onnx: SaveOnnx, tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).standard_normal((6, 100000)).astype(np.float32))
    return save_onnx(CHAIN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("profile", "--target", "sdaa", "--suggest"), ("trying rules: 100%", "rule/s]")),
        (("overflow", "--data", "data.npz", "--batch_size", 2), ("3batch [",)),
        (("compare", "--memory", 1), ("100%", "group/s]")),
        (("dump", "full", "--out", "d", "--memory", 1), ("100%", "group/s]")),
    ],
    ids=["profile", "overflow", "compare", "dump"],
)
def test_a_bar_on_a_terminal_only(
    words: tuple[object, ...], shown: tuple[str, ...], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb = 2 if words[0] == "dump" else 1
    command = (*words[:verb], model, *words[verb:])
    printed, said = run(*command, terminal=True)
    assert all(text in said for text in shown), said
    assert "\r" in said
    if words[0] == "dump":
        for file in (tmp_path / "d").iterdir():
            file.unlink()
    again, quiet = run(*command, terminal=False)
    assert quiet == ""
    assert len(printed.splitlines()) == len(again.splitlines())  # the bar is not in standard output


class Terminal(io.StringIO):
    """A terminal that records what is written."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_nested_bars_print_no_escape_sequence_as_text(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", SafeStream(terminal, "\n\t\r", brief=True))
    for _ in progress(range(2), "batch", "outer \x1b[31m"):
        assert list(progress(range(3), "call", "inner")) == [0, 1, 2]
    printed = terminal.getvalue()
    assert "2/2" in printed
    assert "inner" in printed
    assert "\x1b[31m" not in printed
    assert ("\x1b[A" in printed) == (term != "dumb")
    assert "\\x1b[A" not in printed
