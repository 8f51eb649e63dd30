"""The ``teco`` command: its table, help and exit codes."""

from __future__ import annotations

import importlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, RunPython

from engine import ConfigError
from toolkit.cli import execute
from toolkit.command_table import COMMANDS, HIDDEN, command

BASH = shutil.which("bash") or ""


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(argv) == 0
    shown = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in shown
        assert text in shown
    assert not any(name in shown for name in HIDDEN)


@pytest.mark.parametrize("name", [*COMMANDS, *HIDDEN])
def test_every_command_is_importable(name: str) -> None:
    assert callable(command(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        execute(["help", name])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out


def test_unknown_command_is_one_line(run_python: RunPython) -> None:
    done = run_python("-m", "toolkit.cli", "chek")
    names = ", ".join(COMMANDS)
    message = f"error: unknown command 'chek'; did you mean 'check'? commands: {names}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["zzz"], "unknown command 'zzz'; commands: check, "),
        (["help", "lst"], "unknown command 'lst'; did you mean 'list'?"),
        (["list", "--jsn"], "unrecognized arguments: --jsn; did you mean '--json'? (see teco list --help)"),
        (["run", "digits"], "the following arguments are required: STEP"),
        (["completion", "bsh"], "unknown shell 'bsh'; did you mean 'bash'? shells: bash, zsh, fish"),
    ],
)
def test_wrong_arguments_are_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        execute(argv)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_version_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out.startswith("teco ")


def test_commands_are_imported_lazily(run_python: RunPython) -> None:
    code = (
        "import sys, toolkit.cli; print([m for m in sys.modules if m.startswith(('toolkit.commands', 'model_config'))])"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


def test_closed_reader_is_not_an_error() -> None:
    line = f'"{sys.executable}" -m toolkit.cli list | true; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run([BASH, "-c", line], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_ctrl_c_is_130() -> None:
    """The command blocks on an empty pipe when Ctrl-C arrives."""
    code = (
        "import sys, toolkit.cli as cli\n"
        "def wait(argv):\n"
        "    print('ready', flush=True)\n"
        "    return len(sys.stdin.read())\n"
        "sys.modules['waiting'] = type(sys)('waiting')\n"
        "sys.modules['waiting'].wait = wait\n"
        "cli.COMMANDS['wait'] = ('waiting:wait', '')\n"
        "sys.argv = ['teco', 'wait']\n"
        "cli.main()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in message


def test_the_project_installs_the_command_and_its_templates() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'teco = "tecoinfer_modelzoo.commands:teco"' in project
    files = ["py.typed", "adapt/templates/*.tmpl", "optest/*.tmpl", "ops/*.yaml", "pages/*.j2"]
    assert f"toolkit = {[*files, 'training/operators/*.yaml']}".replace("'", '"') in project
    assert 'utils = ["py.typed", "fetch/*.yaml", "tasks/templates/*/*.tmpl", "pages/templates/*"]' in project
    assert callable(importlib.import_module("toolkit.cli").main)
    templates = [folder for folder in (ROOT / "utils/tasks/templates").iterdir() if any(folder.glob("*.tmpl"))]
    assert {folder.name for folder in templates} >= {"classification", "detection", "text_classification"}
    assert {path.suffix for folder in templates for path in folder.iterdir()} == {".tmpl"}


def test_the_site_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = importlib.import_module("model_config.reports")
    if not hasattr(reports, "build_site"):
        pytest.skip("model_config.reports has no build_site yet")
    assert execute(["site", "--out", str(tmp_path / "zoo.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'zoo.html'}: written\n"
    assert "digits" in (tmp_path / "zoo.html").read_text(encoding="utf-8")
