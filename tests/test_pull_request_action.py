"""action.yml: its steps run as on GitHub, on a pull request of somebody's zoo, in a new virtual environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SCRIPT = ROOT / ".ci" / "pull_request"


def bash(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GITHUB_"))}
    environment = {**kept, **variables}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900)


def stub(folder: Path, code: int) -> str:
    """Write a `teco` that stores its arguments, writes the Markdown, and ends with a code; return the PATH with it."""
    file = folder / "bin" / "teco"
    file.parent.mkdir()
    lines = [
        "#!/bin/sh",
        f'pwd > "{folder}/arguments"; for word in "$@"; do echo "$word" >> "{folder}/arguments"; done',
        'while [ "$1" != --markdown ]; do shift; done; echo "# verdict" > "$2"',
        f"exit {code}",
    ]
    file.write_text("\n".join(lines))
    file.chmod(0o755)
    return f"{file.parent}{os.pathsep}{os.environ['PATH']}"


def test_the_script_passes_flags_and_the_exit_code_on(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    summary = tmp_path / "summary"
    words = [str(SCRIPT), "--zoo", "zoo", "--base", "origin/a b", "--out", "out", "--no_host_speed"]
    done = bash(words, tmp_path, PATH=stub(tmp_path, 4), GITHUB_STEP_SUMMARY=str(summary))
    assert (done.returncode, done.stderr) == (4, "")
    assert summary.read_text() == "# verdict\n"
    folder, *arguments = (tmp_path / "arguments").read_text().splitlines()
    assert folder == str(tmp_path / "zoo")
    assert arguments[:3] == ["check", "--json", str(tmp_path / "out" / "check.json")]
    assert arguments[-3:] == ["--changed_since", "origin/a b", "--no_host_speed"]


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    for words, reason in ((["--zoo", "absent"], "--zoo absent: no such folder"), (["--base"], "--base needs a value")):
        done = bash([str(SCRIPT), *words], tmp_path)
        assert (done.returncode, done.stderr) == (2, f"error: {reason}\n")
    done = bash([str(ROOT / ".ci/install_for_check"), "absent", "check"], tmp_path)
    assert (done.returncode, done.stderr[:6]) == (2, "usage:")


def source(folder: Path) -> Path:
    """Copy the files of the repository that an installation needs, as the runner checks out the action."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith(("tests/", "example/", "benchmarks/", "docs/")) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


class Runner:
    """Runs the shell steps of the action: expressions are replaced by values, files of outputs are there."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder, self.workspace = folder, folder / "workspace"
        defaults = {name: str(one["default"]) for name, one in ACTION["inputs"].items()}
        self.values = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()}
        self.values |= {"github.action_path": str(folder / "action"), "runner.temp": str(folder / "temp")}
        self.files = {name: folder / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in self.files.values():
            file.touch()

    def value(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: self.values[found[1]], text)

    def run(self, name: str, path: str) -> subprocess.CompletedProcess[str]:
        (step,) = (one for one in ACTION["runs"]["steps"] if one.get("name") == name)
        assert step["shell"] == "bash"
        given = {key: self.value(value) for key, value in step["env"].items()}
        variables = {key: str(file) for key, file in self.files.items()}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return bash(words, self.workspace, PATH=path, **variables, **given)


def git(folder: Path, *words: str) -> None:
    author = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    command = ["git", *words]
    subprocess.run(command, cwd=folder, env={**os.environ, **author}, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.long
def test_a_pull_request_of_a_zoo_is_checked(tmp_path: Path) -> None:
    """Two models; a commit breaks the README of one: the hook reports it, only that one is checked, and fails."""
    source(tmp_path / "action")
    runner = Runner(tmp_path, extras="check", base="main")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    runner.workspace.mkdir()
    done = runner.run("Install", path)
    assert done.returncode == 0, done.stderr[-2000:]

    zoo, teco = runner.workspace, str(tmp_path / "venv" / "bin" / "teco")
    for model in ("first", "second"):
        assert bash([teco, "new", "nlp", model], zoo).returncode == 0
        assert bash([teco, "run", model, "export"], zoo).returncode == 0
    git(zoo, "init", "-q", "-b", "main")
    git(zoo, "add", "-A")
    git(zoo, "commit", "-qm", "two models")
    git(zoo, "checkout", "-qb", "change")
    readme = zoo / "example/nlp/first/README.md"
    readme.write_text(readme.read_text(encoding="utf-8").replace("### 2.4", "### 2.7"), encoding="utf-8")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    done = bash([teco, *hook["entry"].split()[1:]], zoo)
    assert done.returncode == 1
    assert "readme-headings" in done.stdout
    assert "second" not in done.stdout
    git(zoo, "commit", "-qam", "breaks a heading")
    done = bash([teco, *hook["entry"].split()[1:]], zoo)
    assert (done.returncode, done.stdout[:35]) == (0, "no model is affected by the changes")

    done = runner.run("Check", path)
    assert done.returncode == 1, done.stderr[-2000:]
    reports = tmp_path / "temp" / "teco-check"
    assert runner.files["GITHUB_OUTPUT"].read_text() == f"reports={reports}\n"
    found = json.loads((reports / "check.json").read_text(encoding="utf-8"))
    assert [(case["case"], case["parts"]["structure"], case["parts"]["function"]) for case in found["cases"]] == [
        ("first", "FAIL", "PASS")
    ]
    assert (reports / "check.xml").is_file()
    assert (reports / "check.html").is_file()
    assert runner.files["GITHUB_STEP_SUMMARY"].read_text() == (reports / "check.md").read_text()
    assert "readme-headings" in runner.files["GITHUB_STEP_SUMMARY"].read_text()

    git(zoo, "revert", "--no-edit", "HEAD")
    done = runner.run("Check", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((reports / "check.json").read_text(encoding="utf-8"))["cases"] == []
