"""Ctrl-C and failed runs leave no dump; the same command works again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import EngineError
from toolkit.cli import execute
from toolkit.dump.entries import Entry
from toolkit.dump.writer import Writer, open_writer

pytest.importorskip("h5py")

GATHER = "net (int64[2] i) => (float[2] y) <float[3] w = {1.0, 2.0, 3.0}> { j = Identity(i) y = Gather(w, j) }"


@pytest.fixture(autouse=True)
def _usual_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["d.h5", "d"])
def test_ctrl_c(name: str, save_onnx: SaveOnnx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = save_onnx("net (float[4] x) => (float[4] y) { a = Abs(x) b = Exp(a) y = Neg(b) }"), tmp_path / name
    kind = type(_opened(tmp_path / f"other.{name}"))
    inner, seen = kind.note, []

    def note(self: Writer, entry: Entry) -> None:
        seen.append(entry.tensor)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        inner(self, entry)
        seen.append("written")  # nothing is torn in the middle

    with monkeypatch.context() as patch:
        patch.setattr(kind, "note", note)
        with pytest.raises(KeyboardInterrupt):
            execute(["dump", "full", str(path), "--out", str(out)])
    assert seen[-1] == "written"
    assert not out.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert execute(["dump", "full", str(path), "--out", str(out)]) == 0


def _opened(path: Path) -> Writer:
    with open_writer(path, {}) as writer:
        return writer


@pytest.mark.parametrize("name", ["d.h5", "d", "there"])
def test_failed_run(name: str, save_onnx: SaveOnnx, tmp_path: Path) -> None:
    path, out = save_onnx(GATHER), tmp_path / name
    (tmp_path / "there").mkdir()
    np.save(tmp_path / "i.npy", np.array([1, 7]))
    words = ["dump", "full", str(path), "--out", str(out), "--data", str(tmp_path / "i.npy")]
    with pytest.raises(EngineError):
        execute(words)
    assert (list(out.iterdir()) == []) if name == "there" else not out.exists()
    np.save(tmp_path / "i.npy", np.array([1, 2]))
    assert execute(words) == 0
