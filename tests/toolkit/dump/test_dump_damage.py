"""Incomplete and damaged dumps: one error line, and recovery of the readable part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support import RunPython, SaveOnnx

from engine import DataError
from toolkit.cli import execute
from toolkit.dump import recover
from toolkit.dump.store import Dump, open_dump
from toolkit.dump.write import write_dump
from toolkit.graph.inputs import random_inputs
from toolkit.graph.trace import traced

pytest.importorskip("h5py")

COUNT, SIZE = 12, 4096
"""Nodes, and float32 elements of what each writes: 16 KiB."""


@pytest.fixture
def chain(save_onnx: SaveOnnx) -> Path:
    lines = "\n".join(f"t{i + 1} = {'Neg' if i % 2 else 'Abs'}(t{i})" for i in range(COUNT))
    return save_onnx(f"net (float[1, {SIZE}] t0) => (float[1, {SIZE}] t{COUNT}) {{ {lines} }}", "chain.onnx")


def dumped(path: Path, out: Path, target: str = "onnx", dtype: str | None = None) -> Dump:
    with traced(path, target, dtype=dtype) as model:
        write_dump(model, random_inputs(path), model.nodes, out)
    return open_dump(out)


FULL = """
import os, resource, sys
from toolkit.cli import main

os.makedirs("work", exist_ok=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.argv = ["teco", "dump", "full", *sys.argv[2:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "limit"), [("d.h5", 1_000), ("d", 1_000), ("d.h5", 250_000)])
def test_full_disk(chain: Path, tmp_path: Path, run_python: RunPython, name: str, limit: int) -> None:
    script, out = tmp_path / "full.py", tmp_path / name
    script.write_text(FULL)
    done = run_python(script, limit, chain, "--out", out, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    reason = "File too large" if name.endswith("h5") else "the disk may be full"
    assert done.stderr.startswith(f"error: {out} cannot be written: {reason}")
    assert "; choose another --out" in done.stderr
    assert done.stderr.count("\n") == 1
    if limit < 20_000:
        assert not out.exists()
        return
    assert "'teco dump recover" in done.stderr
    with pytest.raises(DataError, match=r"'teco dump recover"):
        open_dump(out)
    assert execute(["dump", "recover", str(out), "--out", str(tmp_path / "new")]) == 0
    rest, whole = open_dump(tmp_path / "new"), dumped(chain, tmp_path / "whole")
    assert 3 < len(rest.outputs) < len(whole.outputs)
    for tensor, entry in rest.outputs.items():
        np.testing.assert_array_equal(rest.read(entry), whole.read(whole.outputs[tensor]))


@pytest.mark.slow
def test_truncated_file(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = dumped(chain, tmp_path / "whole.h5")
    data = (tmp_path / "whole.h5").read_bytes()
    counts = []
    for i, share in enumerate((0.3, 0.6, 0.95, 0.9999)):
        cut, new = tmp_path / f"cut{i}.h5", tmp_path / f"new{i}.h5"
        cut.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(DataError, match=r"truncated.*teco dump recover") as error:
            open_dump(cut)
        assert "\n" not in str(error.value)
        assert execute(["dump", "recover", str(cut), "--out", str(new)]) == 0
        rest = open_dump(new)
        counts.append(len(rest.outputs))
        assert f"recovered {len(rest.outputs)} tensors" in capsys.readouterr().out
        for tensor, entry in rest.outputs.items():
            np.testing.assert_array_equal(rest.read(entry), whole.read(whole.outputs[tensor]))
            assert (entry.index, entry.op, entry.module) == (
                whole.outputs[tensor].index,
                whole.outputs[tensor].op,
                whole.outputs[tensor].module,
            )
        assert execute(["dump", "compare", str(tmp_path / "whole.h5"), str(new)]) == 0
        assert f"{new} was recovered from cut{i}.h5" in capsys.readouterr().out
    assert 0 < counts[0] < counts[1] < counts[2] <= counts[3] == COUNT + 1
    for size in (0, 7, 600):
        (tmp_path / "cut.h5").write_bytes(data[:size])
        with pytest.raises(DataError, match=r"cut\.h5: nothing can be read") as error:
            execute(["dump", "recover", str(tmp_path / "cut.h5"), "--out", str(tmp_path / "none")])
        assert "\n" not in str(error.value)
    assert not (tmp_path / "none").exists()


KILLED = """
import os, sys
from pathlib import Path
import toolkit.dump.writer as writer
from toolkit.cli import main

inner = writer.Writer.add
def add(self, place, array):
    if len(self.entries) == 9:
        os._exit(9)
    inner(self, place, array)
writer.Writer.add = add
sys.argv = ["teco", "dump", "full", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("name", ["d.h5", "d"])
def test_killed_process(chain: Path, tmp_path: Path, run_python: RunPython, name: str) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    out = tmp_path / name
    assert run_python(tmp_path / "killed.py", chain, "--out", out).returncode == 9
    if name == "d":
        journal = out / "entries.jsonl"
        journal.write_text(journal.read_text() + '{"index": 4, "op": "Ne')  # the last line was cut too
    assert execute(["dump", "recover", str(out), "--out", str(tmp_path / "new")]) == 0
    rest = open_dump(tmp_path / "new")
    assert len(rest.entries) == 9
    assert rest.about["model"] == "chain.onnx"
    assert rest.inputs(["t0"])[0].shape == (1, SIZE)


def test_damaged_arrays_are_skipped(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = dumped(chain, tmp_path / "whole")
    file = tmp_path / "whole" / whole.outputs["t3"].key
    file.write_bytes(file.read_bytes()[:-5])
    assert execute(["dump", "recover", str(tmp_path / "whole"), "--out", str(tmp_path / "new")]) == 0
    assert "damaged and left out, such as t3" in capsys.readouterr().out
    assert set(whole.outputs) - set(open_dump(tmp_path / "new").outputs) == {"t3"}
    for path, text in ((tmp_path, "no readable manifest"), (tmp_path / "no", "does not exist")):
        with pytest.raises(DataError, match=text):
            execute(["dump", "recover", str(path), "--out", str(tmp_path / "other")])


def test_dumps_of_two_precisions(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dumped(chain, tmp_path / "a")
    dumped(chain, tmp_path / "b", "sdaa")
    dumped(chain, tmp_path / "c", "onnx", "float16")
    for one, other in (("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")):
        assert execute(["dump", "compare", str(tmp_path / one), str(tmp_path / other)]) == 0
        assert "no bad node: 13 tensors compared" in capsys.readouterr().out


def test_partial_dump_as_golden_values(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["dump", "full", str(chain), "--every", "5", "--no_inputs", "--out", str(tmp_path / "d")]) == 0
    capsys.readouterr()
    assert execute(["compare", str(chain), "--a", str(tmp_path / "d")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("not in dump d") == COUNT - 4
    assert "no bad node: 4 tensors compared" in printed


def test_golden_values_in_groups_of_nodes(
    save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = save_onnx("net (float[1, 100000] x) => (float[1, 100000] z) { a = Abs(x) b = Neg(a) z = Exp(b) }")
    assert execute(["dump", "full", str(chain), "--out", str(tmp_path / "d")]) == 0
    capsys.readouterr()
    assert execute(["compare", str(chain), "--a", str(tmp_path / "d"), "--memory", "1"]) == 0
    printed = capsys.readouterr().out
    assert "groups of nodes, to hold at most 1 MiB" in printed
    assert "no bad node: 3 tensors compared" in printed


def test_name_rejected_by_hdf5(chain: Path, tmp_path: Path) -> None:
    model = onnx.load(chain)
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "a\0b"
    onnx.save(model, chain)
    with pytest.raises(DataError, match=r"d\.h5: .*'a\\x00b'; .*--out"):
        execute(["dump", "full", str(chain), "--out", str(tmp_path / "d.h5")])
    assert execute(["dump", "full", str(chain), "--out", str(tmp_path / "d")]) == 0


def test_file_that_hangs_the_hdf5_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    (tmp_path / "dump.h5").write_bytes(b"")
    for code, text in (("while True: pass", "HDF5 library hangs"), ("import os; os.abort()", "(SIGABRT)")):
        monkeypatch.setattr(recover, "PATIENCE", 1.0)
        monkeypatch.setattr(recover, "_WALK", code)
        with pytest.raises(DataError) as error:
            recover.recover(tmp_path / "dump.h5", tmp_path / "new.h5")
        assert str(error.value).startswith(f"{tmp_path / 'dump.h5'}: ")
        assert text in str(error.value)
