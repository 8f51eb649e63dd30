"""The table of versions is only printed for an import typed at a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

import pytest
import torch
from support import ROOT

from tecoinfer_modelzoo import version
from torch_sdaa.loading.core import C
from torch_sdaa.startup import banner

Show = Callable[..., str]
FRAME = "--------------+------------------------------------------------"
NAMES = (
    *("Host IP", "PyTorch", "Torch-SDAA", "SDAA Driver", "SDAA Runtime", "SDPTI"),
    *("TecoDNN", "TecoBLAS", "CustomDNN", "TecoRAND", "TCCL"),
)


def test_the_table_has_the_vendors_rows_and_our_versions() -> None:
    lines = banner.table().splitlines()
    assert [place for place, line in enumerate(lines) if line == FRAME] == [0, 4, 13]
    rows = {line[1:14].rstrip(): line[16:] for line in lines if line != FRAME}
    assert tuple(rows) == NAMES
    assert all(re.match(r" .{13}\| \S", line) for line in lines if line != FRAME)
    assert (rows["PyTorch"], rows["Torch-SDAA"]) == (torch.__version__, f"{version()} (simulated card)")
    assert rows["SDAA Runtime"] == f"simulated ({C.__file__})"
    assert Path(C.__file__).is_file()
    assert {name for name, value in rows.items() if not value.startswith("simulated")} == {
        *("Host IP", "PyTorch", "Torch-SDAA", "TCCL")
    }


def on(terminal: BinaryIO) -> str:
    """Return a terminal's output before the line ``end``; wait for that line."""
    said = b""
    while not said.endswith(b"end\r\n"):
        said += terminal.read1()
    return said.decode().replace("\r\n", "\n").removesuffix("end\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Show]:
    """Return a function that shows the table on a terminal's streams, or others, and returns the output."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader, "rb") as shown:
        monkeypatch.setattr(sys, "argv", ["-c"])
        monkeypatch.setenv(banner.VARIABLE, "")
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)

        def show(**others: TextIO | None) -> str:
            with monkeypatch.context() as patch:  # not longer: pytest changes these streams too
                for name in ("stdout", "stderr"):
                    patch.setattr(sys, name, others.get(name, stream))
                banner.show()
            stream.write("end\n")
            stream.flush()
            return on(shown)

        yield show


def test_the_banner_is_shown_once_for_an_interactive_import(terminal: Show) -> None:
    assert terminal() == banner.table()
    assert os.environ[banner.VARIABLE] == "0"  # what this process starts shows none
    assert terminal() == ""


@pytest.mark.parametrize("typed", [["train.py"], ["/usr/bin/pytest", "-c"], [], ["-"]])
def test_a_program_does_not_show_it(typed: list[str], terminal: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", typed)
    assert terminal() == ""


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK"])
def test_a_rank_above_0_does_not_show_it(name: str, terminal: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert terminal() == ""


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_the_banner_is_not_written_to_a_file(
    name: str, terminal: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "output").open("w") as file:
        assert terminal(**{name: file}) == ""
    assert (tmp_path / "output").read_text() == ""
    monkeypatch.setenv(banner.VARIABLE, "")
    assert terminal(**{name: None}) == ""


@pytest.mark.long
@pytest.mark.slow
def test_the_command_of_the_specification(tmp_path: Path) -> None:
    """At a terminal it shows the table; its child processes at the same terminal do not."""
    code = (
        "import subprocess, sys, torch, torch_sdaa\n"
        "subprocess.run([sys.executable, '-c', 'import torch, torch_sdaa'], check=True)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop(banner.VARIABLE, None)
    reader, writer = pty.openpty()
    with os.fdopen(reader, "rb") as shown:
        subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=writer, env=env, check=True, timeout=120)
        os.write(writer, b"end\n")
        said = on(shown)
        os.close(writer)
    rows = [line.partition("|")[0].strip() for line in said.splitlines() if line != FRAME]
    assert (tuple(rows), said.count(FRAME)) == (NAMES, 3)
