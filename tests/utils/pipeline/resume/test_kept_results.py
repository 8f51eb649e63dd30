from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support import DIGITS, ROOT

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from utils.pipeline import cli, valid
from utils.pipeline.report.safe_stream import SafeStream
from utils.pipeline.resume.records.rows import RecordWriter
from utils.pipeline.run.pipeline import Failure
from utils.tasks.classification.task import CLASSIFICATION

MODEL = DIGITS / "digits_dyn.onnx"


def run(*words: object) -> int:
    argv = ["--target", "onnx", "--workers", "0", "--streams", "1", *map(str, words)]
    data = MODEL.parent / "data" / "val"
    return valid.main(None, CLASSIFICATION, argv=argv, ckpt=MODEL, data_path=data, batch_size=8, input_size=32)


@pytest.fixture(autouse=True)
def _one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_INFER_PIPELINES_MAX_STEPS", "1")


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_result_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("utils.pipeline.report.report.write_file", full)
    with pytest.raises(ConfigError, match=r"r\.json.*No space left"):
        run("--json", tmp_path / "r.json")
    assert "eval_metric 1.0" in capsys.readouterr().out


def test_the_result_is_written_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RecordWriter, "_finish", full)
    with pytest.raises(ConfigError, match=r"r\.samples\.csv.*No space left"):
        run("--json", tmp_path / "r.json")
    assert "eval_metric 1.0" in capsys.readouterr().out
    assert json.loads((tmp_path / "r.json").read_text())["metric"] == 1.0


def test_a_folder_as_result_is_an_error_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.samples.csv").mkdir()
    for path in (tmp_path, tmp_path / "x.json", MODEL):
        with pytest.raises(ConfigError, match="--json"):
            run("--json", path)
    assert capsys.readouterr().out == ""


def test_the_result_is_written_if_the_output_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("utils.pipeline.report.console.print", gone, raising=False)
    monkeypatch.setattr("utils.pipeline.valid.print_engines", lambda *_: None)
    with pytest.raises(BrokenPipeError):
        run("--json", tmp_path / "r.json")
    assert (tmp_path / "r.json").is_file()


def test_a_pipe_without_a_reader_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("tecoinfer_modelzoo.files._PIPE_TIMEOUT", 0.0)
    with pytest.raises(OSError, match="No such device or address"):
        write_file(tmp_path / "pipe", b"x")


def test_the_result_is_written_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", b"content")
    assert os.read(reading, 100) == b"content"
    os.close(reading)


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 250}.json"
    write_file(path, b"{}")
    assert path.read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("7: no image", "7: no image"),
        ("7 is no image", "7 is no image"),
        ("an image has 7 channels", "7: an image has 7 channels"),
        ("77 is odd", "7: 77 is odd"),
    ],
)
def test_the_text_of_a_failure(reason: str, text: str) -> None:
    assert Failure("7", reason).text == text


def test_long_lines_on_stderr_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.run(lambda: sys.stderr.write(f"{'x' * 5000}\ny\n") and 0)
    first, second = capsys.readouterr().err.splitlines()
    assert len(first) < 1500
    assert second == "y"
    shown = SafeStream(sys.stdout, "\n")
    assert shown.write("z" * 5000) == 5000
    assert capsys.readouterr().out == "z" * 5000


def test_lengths_beyond_the_models_positions_are_an_error() -> None:
    from utils.tasks.text_classification import TEXT_CLASSIFICATION

    folder = ROOT / "example" / "nlp" / "language_id"
    argv = ["--target", "onnx", "--workers", "0", "--lengths", "16", "4096"]
    given = {"ckpt": folder / "language_id_dyn.onnx"}
    given["data_path"] = folder / "data" / "val.tsv"
    with pytest.raises(ConfigError, match=r"--lengths 16 4096: .* 128"):
        valid.main(None, TEXT_CLASSIFICATION, argv=argv, **given)
