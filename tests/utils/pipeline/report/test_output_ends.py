"""Exit code 0 comes after the whole work, whatever becomes of the standard streams and whatever foreign code raises."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import DIGITS, ROOT

STARTER = """
import os, sys
for number in map(int, sys.argv[1].split(",") if sys.argv[1] else []):
    os.close(number)
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Becomes a Python command with some of the standard descriptors closed."""

VALID = (DIGITS / "example_valid.py", "--target", "onnx")
MULTI = (DIGITS / "example_multi_batch.py", "--target", "onnx")
SINGLE = (DIGITS / "example_single_batch.py", "--target", "onnx")
PROFILE = ("-m", "toolkit.cli", "profile", DIGITS / "digits_dyn.onnx")
TECOEXEC = ("-m", "tecoexec.cli", "--onnx", DIGITS / "digits_dyn.onnx", "--input_shapes", "8*3*32*32")
COMMANDS = {"valid": VALID, "multi": MULTI, "single": SINGLE, "profile": PROFILE, "tecoexec": TECOEXEC}
PRINTING = {
    "list": ("-m", "toolkit.cli", "list"),
    "help": ("-m", "toolkit.cli", "check", "--help"),
    "check": ("-m", "model_config.check", "--help"),
    "smi": ("-m", "engine.sdaa.smi", "--simulated"),
    "smi-help": ("-m", "engine.sdaa.smi", "--simulated", "--help"),
    "versions": ("-m", "engine"),
    "valid": (*VALID, "--help"),
}
LONG = (pytest.mark.slow, pytest.mark.long)
QUICK = {("valid", "full"), ("multi", "closed"), ("tecoexec", "reader left"), ("smi", "full"), ("list", "reader left")}
QUICK |= {("valid", "none"), ("smi-help", "closed")}


def ended(words: tuple[object, ...], end: str, folder: Path, **env: str) -> tuple[int, str]:
    """Run a command whose standard streams come to this end; return its exit code and standard error."""
    closed = {"closed": "1", "stdin closed": "0", "stderr closed": "2", "none": "0,1,2"}.get(end, "")
    command = [sys.executable, "-c", STARTER, closed, *map(str, words)]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "TECO_CACHE_DIR": str(folder / "cache")} | env
    with open("/dev/full", "wb") as full, open(folder / "err", "w+b") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=full if end == "full" else subprocess.PIPE,
            stderr=full if end == "stderr full" else err,
            cwd=folder,
            env=settings,
        )
        if process.stdout is not None:
            if end != "reader left":
                process.stdout.read()
            process.stdout.close()
        code = process.wait(timeout=300)
        err.seek(0)
        return code, err.read().decode()


def check_json(result: Path) -> None:
    found = json.loads(result.read_text())
    assert isinstance(found, dict)
    if "records" in found:
        assert (result.parent / found["records"]).is_file()


LOST = ("full", "closed", "none")
ENDS = (*LOST, "reader left", "stdin closed", "stderr closed", "stderr full")


def _cases(commands: dict[str, tuple[object, ...]]) -> list[object]:
    return [
        pytest.param(command, end, marks=[] if (command, end) in QUICK else LONG, id=f"{command}, {end}")
        for command in commands
        for end in ENDS
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "end"), _cases(COMMANDS))
def test_files_are_written_if_streams_fail(command: str, end: str, tmp_path: Path) -> None:
    code, err = ended((*COMMANDS[command], "--json", tmp_path / "r.json"), end, tmp_path)
    assert code == (2 if end in LOST else 0), err
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert ("standard output" in err) == (end in LOST and end != "none")
    check_json(tmp_path / "r.json")


@pytest.mark.slow
@pytest.mark.parametrize(("command", "end"), _cases(PRINTING))
def test_commands_that_only_print(command: str, end: str, tmp_path: Path) -> None:
    code, err = ended(PRINTING[command], end, tmp_path)
    assert code == (2 if end in LOST else 0), err
    assert ("Traceback" in err, "Exception ignored" in err) == (False, False)
    assert ("standard output" in err) == (end in LOST and end != "none")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_unbuffered_streams(end: str, tmp_path: Path) -> None:
    code, err = ended((*MULTI, "--json", tmp_path / "r.json"), end, tmp_path, PYTHONUNBUFFERED="1")
    assert code == (2 if end in LOST else 0), err
    assert "Traceback" not in err
    check_json(tmp_path / "r.json")


def test_a_terminal_that_hangs_up(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, *map(str, MULTI), "--json", str(tmp_path / "r.json")]
    with open(tmp_path / "err", "w+b") as err:
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=err, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        os.close(theirs)
        os.read(ours, 1)  # it has begun to print
        os.close(ours)
        code = process.wait(timeout=300)
        err.seek(0)
        said = err.read().decode()
    assert code in (0, 2), said  # all may have been printed before
    assert "Traceback" not in said
    assert (code == 2) == (os.strerror(errno.EIO) in said)
    check_json(tmp_path / "r.json")


FOREIGN = """
import argparse, os, sys
from dataclasses import replace
from pathlib import Path
from utils.pipeline import cli
from utils.tasks.classification.task import CLASSIFICATION

WHERE, WHAT = os.environ["FOREIGN"].split(" ", 1)


def foreign(*args, **kwargs):
    if WHAT == "lost pipe":
        reading, writing = os.pipe()
        os.close(reading)
        os.write(writing, b"x")
    elif WHAT == "other exception":
        raise type("Odd", (BaseException,), {})("odd")
    elif WHAT == "its own parser":
        argparse.ArgumentParser().parse_args(["--help"])
    elif WHAT == "closes the stream":
        sys.stdout.close()
    else:
        exec(WHAT)
    return getattr(CLASSIFICATION, WHERE)(*args, **kwargs)


if __name__ == "__main__":
    digits = Path(sys.argv.pop(1))
    given = {"ckpt": digits / "digits_dyn.onnx", "data_path": digits / "data/val", "batch_size": 8, "input_size": 32}
    cli.valid(__doc__, replace(CLASSIFICATION, **{WHERE: foreign}), target="onnx", **given)
"""

RAISING: tuple[str, ...] = (
    "sys.exit(0)",
    "lost pipe",
    "exit()",
    "sys.exit('text')",
    "sys.exit(1)",
    "raise TypeError('wrong')",
)
RAISING += ("raise ConnectionResetError(104, 'reset')", "other exception", "its own parser", "raise MemoryError")
WHERE = ("metric", "decode", "load", "remarks", "collate", "prepare")


def _raising() -> list[object]:
    quick = {*zip(WHERE[:4], RAISING, strict=False)}
    pairs = [(where, what) for where in WHERE for what in RAISING]
    return [pytest.param(*pair, marks=[] if pair in quick else LONG) for pair in pairs]


def run_foreign(where: str, what: str, folder: Path, *words: object, **environment: str) -> tuple[int, str]:
    (folder / "example_valid.py").write_text(FOREIGN)
    words = (folder / "example_valid.py", DIGITS, "--json", folder / "r.json", *words)
    return ended(words, "", folder, FOREIGN=f"{where} {what}", **environment)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "what"), _raising())
def test_foreign_exit_is_an_error(where: str, what: str, tmp_path: Path) -> None:
    code, err = run_foreign(where, what, tmp_path)
    assert code == 2, err
    assert "error: " in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not [path.name for path in tmp_path.iterdir() if "r." in path.name]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("what", RAISING)
def test_foreign_exit_in_a_child_is_an_error(what: str, tmp_path: Path) -> None:
    code, err = run_foreign("prepare", what, tmp_path, "--worker_mode", "process")
    assert code == 2, err
    assert "error: " in err.splitlines()[-1]
    assert not (tmp_path / "r.json").exists()


def test_a_stream_closed_by_other_code_is_kept(tmp_path: Path) -> None:
    assert run_foreign("decode", "closes the stream", tmp_path) == (0, "")
    check_json(tmp_path / "r.json")


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=LONG)])
def test_a_descriptor_that_foreign_code_closes_is_reported(unbuffered: str, tmp_path: Path) -> None:
    """The records get the number of standard output, and nothing that is printed may be written into them."""
    code, err = run_foreign("metric", "os.close(1)", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert code == 2, err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    if not unbuffered:
        check_json(tmp_path / "r.json")
        assert "eval_metric" not in (tmp_path / "r.samples.csv").read_text()


def test_a_temporary_redirection_is_not_reported(tmp_path: Path) -> None:
    what = "kept = os.dup(1); os.dup2(2, 1); sys.stdout.flush(); os.dup2(kept, 1); os.close(kept)"
    assert run_foreign("metric", what, tmp_path) == (0, "")
