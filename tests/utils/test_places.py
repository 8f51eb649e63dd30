from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from engine import ConfigError
from tecoexec import save_engine, sweep
from toolkit.arguments import Parser
from utils.pipeline.flags.options import options
from utils.places import check_folder, check_outputs, check_paths
from utils.tasks.base import Task
from utils.tasks.detection.task import DETECTION
from utils.tasks.segmentation.task import SEGMENTATION


def refused(path: Path, why: str, *inputs: Path, makes_folders: bool = False) -> None:
    with pytest.raises(ConfigError) as caught:
        check_outputs({"--json": path}, inputs, makes_folders=makes_folders)
    assert str(caught.value).startswith("--json ")
    assert why in str(caught.value)


def test_valid_outputs_are_not_changed(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    for path in (old, tmp_path / "new.json", tmp_path / "pipe", Path("/dev/null"), None):
        check_outputs({"--json": path}, [tmp_path, tmp_path / "missing"])
    check_outputs({"--json": tmp_path / "more" / "and more" / "new.json"}, makes_folders=True)
    assert sorted(os.listdir(tmp_path)) == ["old.json", "pipe"]
    assert old.read_text() == "{}"


def test_invalid_folders_and_paths(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    (tmp_path / "circle").symlink_to("circle")
    refused(tmp_path, "is a folder")
    refused(tmp_path / "gone" / "r.json", "gone does not exist; create it first")
    refused(tmp_path / "text" / "r.json", "no such path can exist")
    refused(tmp_path / "text" / "more" / "r.json", "no such path can exist", makes_folders=True)
    refused(tmp_path / "circle", "symbolic links")
    refused(tmp_path / ("n" * 300), "too long")
    refused(Path("/".join(["d" * 200] * 30)), "too long")
    refused(Path("null\0"), "null")


def test_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("s")
        refused(tmp_path / "s", "is a socket")


def test_folders_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utils.places.os.access", lambda path, *_, **__: Path(path) != tmp_path)
    refused(tmp_path / "r.json", "cannot be written")
    with pytest.raises(ConfigError, match=r"--resume .*: folder .* written"):
        check_folder("--resume", tmp_path / "more")


@pytest.mark.parametrize("how", ["itself", "dots", "link", "hard link"])
def test_inputs_are_not_overwritten(tmp_path: Path, how: str) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"model")
    path = {"itself": model, "dots": tmp_path / "." / "x" / ".." / "model.onnx"}.get(how, tmp_path / "other")
    (tmp_path / "x").mkdir()
    if how == "link":
        path.symlink_to(model)
    elif how == "hard link":
        path.hardlink_to(model)
    refused(path, "this run reads it", tmp_path, model)


def test_two_results_are_two_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--trace .*: --json"):
        check_outputs({"--json": tmp_path / "r", "--csv": None, "--trace": tmp_path / "." / "r"})


def test_folders_for_results(tmp_path: Path) -> None:
    check_folder("--save", None)
    check_folder("--save", tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        check_folder("--save", tmp_path / "file")
    with pytest.raises(ConfigError, match="--save"):
        check_folder("--save", tmp_path / "file" / "x")


def test_invalid_paths(tmp_path: Path) -> None:
    check_paths("--ckpt", tmp_path / "missing", tmp_path)
    for path in (Path("9" * 5000), Path("a\0b"), tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError, match="--ckpt"):
            check_paths("--ckpt", path)


@pytest.mark.parametrize(
    ("metavar", "name", "said"),
    [
        ("FILE", "folder", "is a folder"),
        ("FILE", "none/page.html", "does not exist"),
        ("DIR", "file", "is not a folder"),
        ("DIR", "file/below", "no such path can exist"),
        ("PATH", "file", "is not a folder"),
        ("PATH", "folder.h5", "is a folder"),
        ("PATH", "file/dump.h5", "no such path can exist"),
    ],
)
def test_teco_checks_out_before_the_work(metavar: str, name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.h5").mkdir()
    (tmp_path / "file").touch()
    parser = Parser("teco", None)
    parser.add_argument("--out", type=Path, metavar=metavar)
    with pytest.raises(ConfigError, match=rf"^--out .*{said}"):
        parser.parse_args(["--out", str(tmp_path / name)])
    given = parser.parse_args(["--out", str(tmp_path / {"FILE": "new", "DIR": "folder", "PATH": "new/d.h5"}[metavar])])
    assert not (tmp_path / "new").exists()
    assert given.out.parent
    assert parser.parse_args([]).out is None


def test_commands_check_paths_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"^--out .*file: is not a folder"):
        sweep.execute(["--config", str(tmp_path / "no.yaml"), "--out", str(tmp_path / "file")])
    (tmp_path / "no.tecoengine").mkdir()
    with pytest.raises(ConfigError, match=r"^--out .*no.tecoengine: is a folder"):
        save_engine.execute(["--onnx", str(tmp_path / "no.onnx"), "--out", str(tmp_path / "no.tecoengine")])


@pytest.mark.parametrize(
    ("task", "name", "said"), [(DETECTION, "folder", "is a folder"), (SEGMENTATION, "file", "is no")]
)
def test_the_path_of_saved_predictions(task: Task, name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    words = ["--ckpt", "m.onnx", "--data_path", ".", "--save_predictions"]
    with pytest.raises(ConfigError, match=rf"^--save_predictions .*{name}: {said}"):
        options(None, task, "valid", [*words, str(tmp_path / name)])
