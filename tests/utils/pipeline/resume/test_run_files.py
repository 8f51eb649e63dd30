"""What ``--resume`` keeps, and a data set that changes under the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, ROOT, made

from engine import ConfigError, DataError, Engine
from utils.datasets import load_dataset, rank_and_size, shard
from utils.metrics import TopK
from utils.pipeline.flags.options import Options, options as parse
from utils.pipeline.resume.run_files import open_run_files
from utils.pipeline.session import open_engines
from utils.tasks.classification.task import CLASSIFICATION

CHANGED = r"data set .* changed"


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    with open_engines(made(CLASSIFICATION, options(DIGITS / "data" / "val"))) as opened:
        yield opened


def options(data: Path, *extra: object) -> Options:
    words = ["--target", "onnx", *map(str, extra)]
    where = {"ckpt": DIGITS / "digits_dyn.onnx", "data_path": data}
    return parse(None, CLASSIFICATION, "valid", words, **where, batch_size=8, input_size=32)


def keeping(opt: Options, engines: dict[str, Engine]) -> AbstractContextManager[dict[str, Any]]:
    (data,) = opt.paths.values()
    return open_run_files(made(CLASSIFICATION, opt), engines, shard(load_dataset(data), *rank_and_size()), TopK(), [])


def copied(folder: Path, classes: int = 3) -> Path:
    for name in range(classes):
        shutil.copytree(DIGITS / "data" / "val" / str(name), folder / "val" / str(name))
    return folder / "val"


def a_folder(tmp_path: Path) -> Path:
    return copied(tmp_path)


def a_label_file(tmp_path: Path) -> Path:
    images = sorted(copied(tmp_path).rglob("*.png"))
    lines = [f"{path.relative_to(tmp_path)} {path.parent.name}\n" for path in images]
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path / "list.txt"


def a_folder_with_a_label_file(tmp_path: Path) -> Path:
    a_label_file(tmp_path).rename(tmp_path / "val.txt")
    return tmp_path


def an_npz(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", images=np.zeros((9, 3, 32, 32), np.float32), labels=np.arange(9))
    return tmp_path / "data.npz"


def first(data: Path) -> Path:
    return min((data if data.is_dir() else data.parent).rglob("*.png"))


def add_an_image(data: Path) -> None:
    shutil.copy(first(data), first(data).with_name("zz.png"))


def add_a_class(data: Path) -> None:
    shutil.copytree(data / "1", data / "9")


def take_an_image(data: Path) -> None:
    first(data).unlink()


def rewrite_an_image(data: Path) -> None:
    with first(data).open("ab") as file:
        file.write(b"more")


def other_label(data: Path) -> None:
    file = data / "val.txt" if data.is_dir() else data
    text = file.read_text()
    file.write_text(text.replace(".png 0\n", ".png 1\n", 1))


def replace_the_file(data: Path) -> None:
    new = data.with_name("new.txt")
    new.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    new.replace(data)


def take_all(data: Path) -> None:
    data.unlink() if data.is_file() else shutil.rmtree(data)


def other_rows(data: Path) -> None:
    np.savez(data, images=np.ones((9, 3, 32, 32), np.float32), labels=np.arange(9))


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (a_folder, add_an_image),
        (a_folder, add_a_class),
        (a_folder, take_an_image),
        (a_folder, rewrite_an_image),
        (a_folder, take_all),
        (a_label_file, other_label),
        (a_label_file, replace_the_file),
        (a_label_file, take_all),
        (a_folder_with_a_label_file, other_label),
        (an_npz, other_rows),
    ],
)
def test_a_change_during_the_run_is_an_error(
    engines: dict[str, Engine], tmp_path: Path, made: Callable[[Path], Path], change: Callable[[Path], None]
) -> None:
    data = made(tmp_path)
    opt = options(data, "--resume", tmp_path / "journals")
    with pytest.raises(DataError, match=CHANGED) as caught, keeping(opt, engines):
        change(data)
    assert str(data) in str(caught.value)
    assert str(opt.resume) in str(caught.value)
    assert "\n" not in str(caught.value)


def notes(data: Path) -> None:
    (data if data.is_dir() else data.parent).joinpath("notes.txt").write_text("no image")


def same_again(data: Path) -> None:
    data.write_text(data.read_text())


@pytest.mark.parametrize(
    ("made", "change"),
    [(a_folder, notes), (a_label_file, notes), (a_label_file, add_an_image), (a_label_file, same_again)],
)
def test_other_files_may_change(
    engines: dict[str, Engine], tmp_path: Path, made: Callable[[Path], Path], change: Callable[[Path], None]
) -> None:
    data = made(tmp_path)
    opt = options(data, "--resume", tmp_path / "journals")
    with keeping(opt, engines) as keep:
        assert keep.keys() == {"journal"}
        change(data)


def test_without_resume_changes_are_not_checked(engines: dict[str, Engine], tmp_path: Path) -> None:
    data = a_folder(tmp_path)
    with keeping(options(data), engines) as keep:
        assert keep == {}
        add_an_image(data)


def test_every_rank_checks_its_part(
    engines: dict[str, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    data = a_folder(tmp_path)
    opt = options(data, "--resume", tmp_path / "journals")
    with keeping(opt, engines):
        notes(data)
    with pytest.raises(DataError, match=CHANGED), keeping(opt, engines):
        add_an_image(data)


def test_a_changed_data_set_is_not_resumed(engines: dict[str, Engine], tmp_path: Path) -> None:
    data = a_folder(tmp_path)
    opt = options(data, "--resume", tmp_path / "journals")
    with keeping(opt, engines):
        pass
    add_an_image(data)
    with pytest.raises(ConfigError, match="another run: data is ") as caught:
        keeping(opt, engines).__enter__()
    count = len(load_dataset(data))
    assert f"; samples is {count - 1} there and {count} here" in str(caught.value)


@pytest.mark.slow
def test_a_script_whose_data_grows(tmp_path: Path) -> None:
    data = copied(tmp_path, classes=10)
    lines = [f"{path.relative_to(tmp_path)} {path.parent.name}\n" for path in sorted(data.rglob("*.png"))]
    (tmp_path / "list.txt").write_text("".join(lines * 12))
    journals = tmp_path / "journals"
    command = [sys.executable, DIGITS / "example_valid.py", "--target", "onnx", "--batch_size", 8, "--resume", journals]
    command += ["--data_path", tmp_path / "list.txt"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, command)), env=env, stdout=pipe, stderr=pipe, text=True) as process:
        while process.poll() is None and not (journals / "journal.jsonl").exists():
            time.sleep(0.002)
        with (tmp_path / "list.txt").open("a") as file:
            file.write(lines[0])
        out, err = process.communicate(timeout=60)
    assert (process.returncode, "eval_metric" in out) == (2, False)
    (line,) = err.splitlines()
    assert line.startswith(f"error: data set {tmp_path / 'list.txt'} changed")
