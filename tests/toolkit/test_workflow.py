"""The GitHub workflow file is valid, and its commands exist."""

from __future__ import annotations

import importlib
import re
import shlex

import yaml
from support import ROOT

from toolkit.command_table import COMMANDS

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["check"]["steps"]
RUN = "\n".join(step["run"] for step in STEPS if "run" in step)


def test_checkout_has_full_history() -> None:
    (checkout,) = (step for step in STEPS if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["fetch-depth"] == 0
    assert WORKFLOW[True] == {"pull_request": {"branches": ["main"]}}  # YAML 1.1 reads the key `on` as true


def test_steps_are_pinned_actions_or_commands() -> None:
    for step in STEPS:
        assert ("run" in step) != ("uses" in step)
        assert "run" in step or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_install_uses_existing_extras_and_files() -> None:
    (install,) = (line for line in RUN.splitlines() if "pip install" in line)
    words = shlex.split(install)
    assert (ROOT / words[words.index("-c") + 1]).is_file()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.search(r"\[([\w,]+)\]", words[-1])
    assert extras is not None
    missing = [extra for extra in extras[1].split(",") if not re.search(rf"^{extra} = \[", project, re.MULTILINE)]
    assert missing == []


def test_check_command_and_reports() -> None:
    (command,) = (shlex.split(line) for line in RUN.splitlines() if line.startswith("teco "))
    module, _, function = COMMANDS[command[1]][0].partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    flags = [word for word in command if word.startswith("--")]
    assert flags == ["--changed_since", "--json", "--junit", "--markdown", "--html", "--work_dir"]
    files = [word for word in command if word.startswith("report/check.")]
    assert len(files) == 4
    upload = next(step for step in STEPS if step.get("uses", "").startswith("actions/upload-artifact@"))
    assert upload["if"] == "always()"
    assert upload["with"]["path"].split() == ["report/check.*", "report/work/logs"]
    assert "report/check.md" in files
    assert "GITHUB_STEP_SUMMARY" in RUN
