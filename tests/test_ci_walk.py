"""`.ci/walk` runs commands as users do, and reports each failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import ROOT


def walk(tmp_path: Path, *commands: object, only: str = "") -> subprocess.CompletedProcess[str]:
    table = tmp_path / "walk.yaml"
    table.write_text(yaml.safe_dump({"one": {"ways": "every", "commands": list(commands)}}), encoding="utf-8")
    words = [sys.executable, str(ROOT / ".ci/walk"), "--table", str(table), *(["--only", only] if only else [])]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_command_runs_in_four_ways(tmp_path: Path) -> None:
    script = tmp_path / "way.py"
    script.write_text(
        "import os, sys\n"
        'way = f\'{sys.stdout.isatty()} {os.environ.get("PYTHONUNBUFFERED", "")}\'\n'
        "open(__file__ + '.log', 'a').write(way + chr(10))\n"
    )
    done = walk(tmp_path, f"python {script}")
    assert done.returncode == 0, done.stdout
    assert sorted((tmp_path / "way.py.log").read_text().splitlines()) == ["False ", "False 1", "True ", "True 1"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ('python -c "raise SystemExit(3)"', "exit code 3"),
        ({"run": "python -c pass", "code": 2}, "exit code 0"),
        ({"run": 'python -c "1 / 0"', "code": 1}, "traceback"),
        ("python -c \"print(chr(92) + 'x1b[31mred')\"", "text"),
        ("python -c \"print(chr(27) + '[31mred')\"", "file"),
        ("python -c \"print('eval_metric 1.0')\" example_valid.py", "closing"),
        ("python -c pass --json {out}/none.json", "none.json"),
        ("python -c \"open('{out}/a.json', 'w').write('[1]')\" --json {out}/a.json", "no schema_version"),
    ],
)
def test_failures_are_reported(tmp_path: Path, command: object, problem: str) -> None:
    done = walk(tmp_path, command)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert problem in done.stdout


def test_a_group_can_be_chosen(tmp_path: Path) -> None:
    assert walk(tmp_path, 'python -c "raise SystemExit(3)"', only="another").returncode == 0


def test_the_table_has_three_scripts_of_each_domain_and_every_tool() -> None:
    table = yaml.safe_load((ROOT / ".ci/walk.yaml").read_text(encoding="utf-8"))
    lines = [one["run"] if isinstance(one, dict) else one for group in table.values() for one in group["commands"]]
    for domain in (path.name for path in (ROOT / "example").iterdir() if path.is_dir()):
        if domain not in ("training", "custom_op"):
            for script in ("valid", "single_batch", "multi_batch"):
                assert any(f"example/{domain}/" in line and f"example_{script}.py" in line for line in lines), domain
    tools = "list info run check profile table compare dump overflow fix ops optest site fetch completion transplant"
    for command in tools.split():
        assert any(line.startswith(f"teco {command}") for line in lines), command
