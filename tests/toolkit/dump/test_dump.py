from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import DIGITS, SaveOnnx

from engine import ConfigError, DataError
from toolkit.cli import execute
from toolkit.dump.pair import compare_dumps
from toolkit.dump.recover import recover
from toolkit.dump.select import between, every, once
from toolkit.dump.store import Dump, open_dump
from toolkit.dump.write import write_dump
from toolkit.graph.inputs import random_inputs
from toolkit.graph.trace import traced

NET = """
net (float[1, 4] x) => (float[1, 4] y)
{
  a = Neg(x)
  b = Exp(a)
  c = Neg(b)
  d = Exp(c)
  y = Add(d, a)
}
"""


@pytest.fixture
def net(save_onnx: SaveOnnx) -> Path:
    return save_onnx(NET, "net.onnx")


def dumped(path: Path, out: Path, target: str = "onnx", seed: int = 0, **options: bool | int) -> Dump:
    with traced(path, target) as model:
        write_dump(model, random_inputs(path, seed), model.nodes, out, **options)
    return open_dump(out)


@pytest.mark.parametrize("name", ["dump.h5", "dump"])
def test_dump_round_trip(net: Path, tmp_path: Path, name: str) -> None:
    if name.endswith(".h5"):
        pytest.importorskip("h5py")
    x = random_inputs(net, 0)
    with traced(net, "onnx") as model:
        values = model.run(x)
    dump = dumped(net, tmp_path / name)
    assert dump.about["model"] == "net.onnx"
    assert set(dump.outputs) == {"x", "a", "b", "c", "d", "y"}
    for tensor, value in values.items():
        np.testing.assert_array_equal(dump.read(dump.outputs[tensor]), value)
    np.testing.assert_array_equal(dump.inputs(["x"])[0], x[0])
    second = [entry for entry in dump.entries if (entry.op, entry.sequence) == ("Exp", 1)]
    assert [(entry.slot, entry.tensor, entry.index) for entry in second] == [("input", "c", 3), ("output", "d", 3)]
    np.testing.assert_array_equal(dump.read(second[0]), values["c"])
    with pytest.raises(DataError, match="lacks input 'z'; it has: x"):
        dump.inputs(["z"])


def test_hdf5_layout(net: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    dumped(net, tmp_path / "d.h5")
    with h5py.File(tmp_path / "d.h5") as file:
        assert set(file["/Neg"]) == {"0", "1"}
        assert set(file["/Neg/1"]) == {"input", "output"}
        assert file["/Neg/1"].attrs["name"] == "Neg_2"
        assert file["/Neg/1/output/0"].attrs["tensor"] == "c"
        assert file["/Neg/1/output/0"] == file["/Exp/1/input/0"]  # kept once


def test_memory_groups_and_float16(net: Path, tmp_path: Path) -> None:
    whole, parts = dumped(net, tmp_path / "a", "sdaa"), dumped(net, tmp_path / "b", "sdaa", memory=40)
    assert {e.dtype for e in whole.entries if e.slot == "output" and e.index >= 0} == {"float16"}
    for tensor, entry in whole.outputs.items():
        np.testing.assert_array_equal(whole.read(entry), parts.read(parts.outputs[tensor]))
    assert not [e for e in dumped(net, tmp_path / "c", with_inputs=False).entries if e.slot == "input"]


def test_selections(net: Path) -> None:
    with traced(net, "onnx") as model:
        nodes = model.nodes
    assert [node.index for node in every(nodes)] == [0, 1, 2, 3, 4]
    assert [node.index for node in every(nodes, 3)] == [0, 3, 4]
    assert [node.name for node in once(nodes, "c")] == ["Neg_2"]
    assert [node.index for node in between(nodes, "1", "Exp_3")] == [1, 2, 3]
    assert [node.index for node in between(nodes, "d", "")] == [3, 4]
    with pytest.raises(ConfigError, match="comes before the first"):
        between(nodes, "3", "1")
    with pytest.raises(ConfigError, match=r"index 5: .*0 to 4"):
        between(nodes, "5", "")
    with pytest.raises(ConfigError, match="did you mean 'Exp_3'"):
        once(nodes, "Exp_33")


def test_two_dumps(net: Path, tmp_path: Path) -> None:
    a, b = dumped(net, tmp_path / "a"), dumped(net, tmp_path / "b", "sdaa")
    found = compare_dumps(a, b)
    assert found.first_bad is None
    assert [row.tensor for row in found.rows] == ["x", "a", "b", "c", "d", "y"]
    assert found.rows[-1].accumulated
    assert 0 < found.rows[-1].accumulated.diff2 < 1e-2
    other = compare_dumps(a, dumped(net, tmp_path / "c", seed=1))
    assert other.first_bad
    assert any("different inputs: 'x' differs" in note for note in other.notes)


def test_dumps_of_other_models_and_shapes(net: Path, tmp_path: Path, save_onnx: SaveOnnx) -> None:
    a = dumped(net, tmp_path / "a")
    strange = save_onnx("net (float[1, 4] p) => (float[1, 4] q) { q = Neg(p) }", "strange.onnx")
    with pytest.raises(DataError, match=r"no tensor in common"):
        compare_dumps(a, dumped(strange, tmp_path / "b"))
    larger = save_onnx(NET.replace("[1, 4]", "[1, 5]"), "larger.onnx")
    found = compare_dumps(a, dumped(larger, tmp_path / "c"))
    assert found.rows[0].status == "shape [1, 5] is not the reference's [1, 4]"
    assert any("different files: net.onnx and larger.onnx" in note for note in found.notes)


def test_damaged_dumps(net: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    dumped(net, tmp_path / "whole.h5")
    data = (tmp_path / "whole.h5").read_bytes()
    for size in (0, 7, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.h5").write_bytes(data[:size])
        with pytest.raises(DataError, match=r"cut\.h5 .*HDF5") as error:
            open_dump(tmp_path / "cut.h5")
        assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="does not exist"):
        open_dump(tmp_path / "none.h5")
    with pytest.raises(DataError, match="not a dump"):
        open_dump(tmp_path / "none.txt")
    with pytest.raises(DataError, match=r"no manifest\.json"):
        open_dump(tmp_path)
    folder = dumped(net, tmp_path / "folder")
    first = tmp_path / "folder" / folder.outputs["a"].key
    first.write_bytes(first.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"not a readable \.npy file"):
        folder.read(folder.outputs["a"])
    np.save(first, np.zeros(3))
    with pytest.raises(DataError, match="in the manifest"):
        folder.read(folder.outputs["a"])
    manifest = tmp_path / "folder/manifest.json"
    manifest.write_text(json.dumps({"schema_version": 1, "entries": [{"index": 1}]}))
    with pytest.raises(DataError, match=r"manifest\.json is invalid"):
        open_dump(tmp_path / "folder")
    for text in ("{", "[" * 100_000):
        manifest.write_text(text)
        with pytest.raises(DataError, match="cannot be read"):
            open_dump(tmp_path / "folder")


@pytest.mark.parametrize("field", ["op", "index", "shape", "key"])
@pytest.mark.parametrize("value", [None, [["x"]], {}, 1.5, True])
def test_manifest_with_wrong_types(net: Path, tmp_path: Path, field: str, value: object) -> None:
    dumped(net, tmp_path / "folder")
    manifest = tmp_path / "folder/manifest.json"
    message = json.loads(manifest.read_text())
    message["entries"][2][field] = value
    manifest.write_text(json.dumps(message))
    with pytest.raises(DataError, match=r"manifest\.json is invalid"):
        open_dump(tmp_path / "folder")
    with pytest.raises(DataError, match=r"no readable manifest\.json"):
        recover(tmp_path / "folder", tmp_path / "new")


def test_interrupted_dump_is_rejected(net: Path, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    from toolkit.dump.writer import open_writer

    for out in (tmp_path / "half.h5", tmp_path / "half"):
        with pytest.raises(KeyboardInterrupt), open_writer(out, {}):
            raise KeyboardInterrupt
        with pytest.raises(DataError, match=r"does not exist|not a dump"):
            open_dump(out)
    (tmp_path / "half.h5").write_bytes(b"")
    with pytest.raises(ConfigError, match="exists"):
        open_writer(tmp_path / "half.h5", {})
    (tmp_path / "half").mkdir()
    (tmp_path / "half/a.npy").write_bytes(b"")
    with pytest.raises(ConfigError, match="not an empty folder"):
        open_writer(tmp_path / "half", {})


def test_dump_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py")
    model = [str(DIGITS / "digits_dyn.onnx"), "--shape", "input=1,3,32,32"]
    whole, card = str(tmp_path / "a.h5"), str(tmp_path / "b")
    assert execute(["dump", "full", *model, "--out", whole, "--csv", str(tmp_path / "a.csv")]) == 0
    assert "21 nodes, 22 tensors" in capsys.readouterr().out
    assert execute(["dump", "full", *model, "--out", card, "--target", "sdaa", "--data", whole, "--every", "4"]) == 0
    assert "outputs do not exist on sdaa" in capsys.readouterr().out
    assert execute(["dump", "compare", whole, card, "--html", str(tmp_path / "c.html")]) == 0
    assert "no bad node" in capsys.readouterr().out
    assert execute(["compare", *model, "--a", whole, "--b", "sdaa", "--json", str(tmp_path / "g.json")]) == 0
    made = json.loads((tmp_path / "g.json").read_text())
    assert made["facts"]["inputs"] == "the inputs in dump a.h5"
    assert sum("isolated_diff2" in row for row in made["rows"]) == 14
    assert execute(["dump", "once", *model, "--name", "node_linear", "--out", str(tmp_path / "o")]) == 0
    assert execute(["dump", "range", *model, "--from", "3", "--to", "5", "--out", str(tmp_path / "r")]) == 0
    assert "3 nodes" in capsys.readouterr().out
    for words, text in (([], "unknown kind of dump 'ful'"), (["full", *model, "--out", whole], "exists")):
        with pytest.raises(ConfigError, match=text):
            execute(["dump", *(words or ["ful"])])
