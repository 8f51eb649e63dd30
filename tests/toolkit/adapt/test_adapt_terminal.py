"""The question and Ctrl-C of `teco adapt` on a pseudo-terminal."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support import ROOT
from zoo_copy import copy_zoo

from toolkit.adapt.cli import _ask
from toolkit.adapt.table import STAGES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals of Linux")

CHOICES = ("segmentation", "arrays")

PATIENCE = 300.0
"""Seconds for a run of all stages."""


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Make a pseudo-terminal the standard input and error; yield the side of the person."""
    person, side = os.openpty()
    try:
        with open(side, encoding="utf-8", closefd=False) as read, open(side, "w", closefd=False) as written:
            monkeypatch.setattr(sys, "stdin", read)
            monkeypatch.setattr(sys, "stderr", written)
            yield person
            monkeypatch.undo()
    finally:
        os.close(side)
        os.close(person)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [(b"\n", "segmentation"), (b"arrays\n", "arrays"), (b"what\n arrays \n", "arrays"), (b"\x04", "segmentation")],
)
def test_answers(typed: bytes, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as person:
        os.write(person, typed)
        found = _ask("which task is it?", CHOICES, "segmentation")
        shown = ""
        while select.select([person], [], [], 0.2)[0]:
            shown += os.read(person, 4096).decode()
    assert found == answer
    assert "which task is it?" in shown
    assert "segmentation / arrays [segmentation]: " in shown
    assert ("'what' is not one of them" in shown) == typed.startswith(b"what")


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("arrays\n", encoding="utf-8")
    with (tmp_path / "none").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert _ask("which task is it?", CHOICES, "segmentation") is None


def classifier(file: Path) -> Path:
    """Write a network that takes images and gives 4 numbers: a classifier, or anything else."""
    weight = np.random.default_rng(0).normal(0, 0.1, (3 * 8 * 8, 4)).astype(np.float32)
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    ends = [helper.make_tensor_value_info("x", 1, ["N", 3, 8, 8]), helper.make_tensor_value_info("y", 1, ["N", 4])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


class OnTerminal:
    """A command whose terminal is a pseudo-terminal; ``shown`` is all that it printed."""

    def __init__(self, *words: object, zoo: Path) -> None:
        self.person, side = os.openpty()
        code = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        code += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        command = [sys.executable, "-c", code, "-m", "toolkit.cli", *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": f"{zoo}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            command, cwd=zoo, stdin=side, stdout=side, stderr=side, env=environment, close_fds=True
        )
        os.close(side)
        self.shown = ""

    def until(self, ready: Callable[[str], bool]) -> None:
        """Read until a condition on the text holds."""
        deadline = time.monotonic() + PATIENCE
        while not ready(self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self.person], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.person, 4096).decode(errors="replace")
                except OSError:  # the command has ended
                    return

    def type(self, text: str) -> None:
        os.write(self.person, text.encode())

    def ended(self) -> int:
        """Read to the end and return the exit code."""
        self.until(lambda _: False)
        os.close(self.person)
        return self.process.wait(PATIENCE)


@pytest.mark.slow
@pytest.mark.long
def test_question_ctrl_c_and_continuation(tmp_path: Path) -> None:
    zoo = copy_zoo(tmp_path / "zoo")
    words = ("adapt", classifier(tmp_path / "net.onnx"), "--licence", "MIT", "--source", "the zoo's tests")
    first = OnTerminal(*words, zoo=zoo)
    first.until(lambda text: "which task is it?" in text)
    first.type("arrays\n")
    first.until(lambda text: "[ 7/14]" in text)
    first.type("\x03")
    assert first.ended() == 130
    line = first.shown.split("^C")[-1].split("\r")[-2].strip()
    assert "\\x" not in first.shown
    assert line.startswith("interrupted after "), first.shown
    assert "the same command continues" in line
    assert first.shown.count("interrupted") == 1
    assert "Traceback" not in first.shown
    done = list(json.loads((zoo / "adapt_net/adapt.json").read_text(encoding="utf-8"))["stages"])
    assert done[:4] == ["take_in", "export", "task", "data"]
    second = OnTerminal(*words, zoo=zoo)
    code = second.ended()
    assert code == 0, second.shown
    assert second.shown.count("(kept)") == len(done)
    assert "which task" not in second.shown
    assert "PASS" in second.shown
    assert len(STAGES) == 14
