""".ci/long on a tiny table of suites, in a separate clone: finished suites are kept however the script ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

TABLE = """\
first: python -c "open('ran', 'a').write('first ')"
second: python waits.py
third: env WORD=deliberately python -c "import os; print('x' * 9000, flush=True); raise SystemExit(os.environ['WORD'])"
"""

WAITS = """\
import os, time
open('ran', 'a').write('second ')
open('pid.new', 'w').write(str(os.getpid()))
os.rename('pid.new', 'pid')
while not os.path.exists('go'):
    time.sleep(0.01)
"""


class Clone:
    """A repository that holds the script, a table and nothing else; what suites write is ignored."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "long", folder / ".ci" / "long")
        self.write(".ci/suites.yaml", TABLE)
        self.write("waits.py", WAITS)
        self.write(".gitignore", ".ci/results/\nran\npid*\ngo\n")
        self.git("init", "-q")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "A change")

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.folder / ".ci" / "long"), *words]
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        return subprocess.Popen(command, cwd="/", env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def until_it_waits(self, process: subprocess.Popen[str]) -> int:
        """Return the process that the second suite is."""
        while not (self.folder / "pid").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        return int((self.folder / "pid").read_text())

    @property
    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().split() if (self.folder / "ran").exists() else []

    @property
    def records(self) -> list[dict[str, Any]]:
        found = sorted((self.folder / ".ci" / "results").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text(encoding="utf-8")) for path in found]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_killed_run_continues(clone: Clone) -> None:
    process = clone.start()
    suite = clone.until_it_waits(process)
    process.kill()
    process.communicate()
    while sys.platform == "linux" and alive(suite):  # it ends with the script: else this is an endless loop
        time.sleep(0.005)
    (record,) = clone.records
    assert {name: done["outcome"] for name, done in record["suites"].items()} == {"first": "passed"}

    clone.write("go", "")
    code, out, err = clone.run()
    assert (code, err) == (1, ""), out
    assert clone.ran == ["first", "second", "second"]
    (record,) = clone.records
    assert (record["schema_version"], record["commit"], record["changes"]) == (1, clone.git("rev-parse", "HEAD"), "")
    assert out.splitlines()[-1] == f".ci/results/{record['date']}-{record['commit'][:12]}.json"
    found = {name: (done["outcome"], done["exit_code"]) for name, done in record["suites"].items()}
    assert found == {"first": ("passed", 0), "second": ("passed", 0), "third": ("failed", 1)}
    third = record["suites"]["third"]
    assert third["command"].startswith("env WORD=deliberately python -c")
    assert third["seconds"] >= 0
    assert len(third["tail"]) == 4000
    assert third["tail"].endswith("x\ndeliberately\n")
    assert "tail" not in record["suites"]["first"]

    assert clone.run()[0] == 1  # the failure is not forgotten, and nothing runs
    assert clone.ran == ["first", "second", "second"]


def test_selected_suites(clone: Clone) -> None:
    assert clone.run("--only", "first")[0] == 0
    assert clone.run("--only", "first")[0] == 0
    assert clone.ran == ["first"]
    assert clone.run("--only", "first", "--again")[0] == 0
    assert clone.ran == ["first", "first"]
    code, out, _ = clone.run("--list")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["first", "passed"], ["second", "not"], ["third", "not"]]
    assert clone.ran == ["first", "first"]
    assert clone.run("--only", "fourth") == (2, "", "--only fourth: no such suite; use first, second, third\n")


def test_changed_files_run_again(clone: Clone) -> None:
    """Whether committed, changed, or not known to git yet."""
    clone.run("--only", "first")
    clone.commit()
    clone.run("--only", "first")
    clone.write("waits.py", "")
    clone.run("--only", "first")
    clone.write("new.py", "a")
    clone.run("--only", "first")
    clone.run("--only", "first")
    clone.write("new.py", "b")
    clone.run("--only", "first")
    assert clone.ran == ["first"] * 5
    records = clone.records
    assert len({record["commit"] for record in records}) == 2
    assert [bool(record["changes"]) for record in records] == [False, False, True, True, True]


def test_killed_rerun_discards_old_results(clone: Clone) -> None:
    clone.write("go", "")
    clone.run()
    (clone.folder / "go").unlink()
    (clone.folder / "pid").unlink()
    process = clone.start("--again")
    clone.until_it_waits(process)
    process.kill()
    process.communicate()
    assert list(clone.records[0]["suites"]) == ["first"]


def test_one_at_a_time_and_ctrl_c(clone: Clone) -> None:
    process = clone.start()
    suite = clone.until_it_waits(process)
    code, out, err = clone.run()
    assert (code, out) == (2, "")
    assert err.endswith("lock: another .ci/long is at work; wait for it, or end it\n")
    for pid in (process.pid, suite):  # as a terminal does
        os.kill(pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert list(clone.records[0]["suites"]) == ["first"]


def test_errors_are_one_line(clone: Clone) -> None:
    clone.write(".ci/suites.yaml", "first: no-such-program-at-all --flag\n")
    code, _, err = clone.run()
    assert code == 2
    assert err.count("\n") == 1
    assert "no-such-program-at-all --flag cannot be started" in err
    clone.write(".ci/suites.yaml", "first: [1]\n")
    code, _, err = clone.run()
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("suites.yaml: must be lines `name: command`\n")
    shutil.rmtree(clone.folder / ".git")
    clone.write(".ci/suites.yaml", TABLE)
    code, _, err = clone.run()
    assert (code, err.count("\n")) == (2, 1)
    assert "git cannot say which commit this is" in err


def test_suites_name_existing_files() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "long", "--list"], capture_output=True, text=True, check=True)
    words = [word.removeprefix("--ignore=") for word in done.stdout.split()]
    paths = [word for word in words if word.startswith(("tests/", "benchmarks/"))]
    assert len(paths) >= 8
    assert [path for path in paths if not (ROOT / path).exists()] == []
