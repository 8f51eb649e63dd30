"""Files of a model's folder that git ignores, so that the copy in which the steps run lacks them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from model_config.cases.config import Case
from model_config.results import Finding, StepResult

RULE = "ignored"

_TAIL = 20_000
"""Maximum bytes of the end of a log that are searched for names of files."""

_MOST = 10
"""Maximum number of findings of a step."""


def missing_from_git(case: Case, result: StepResult, root: Path, copy: Path) -> list[Finding]:
    """Return a finding per ignored file that a failed step names and its folder lacks.

    Args:
        case: the case. result: of the failed step. root: the repository. copy: the copy of the model's folder.
    """
    said = "\n".join([" ".join(result.command), result.reason, *map(_tail, (result.stdout, result.stderr))])
    words = set(re.findall(r"[^\s'\"=:,;()\[\]]+", said))
    names = {os.path.basename(word.rstrip(".")) for word in words}
    found = []
    for name in _ignored(case.run_dir, root):
        inner = os.path.relpath(name, case.run_dir)
        if os.path.basename(name) in names and not os.path.lexists(copy / inner):
            message = f"step {result.step} failed and names this file, which is there but ignored by git"
            found.append(Finding(name, 0, RULE, message, f"add it with 'git add -f {name}', or correct .gitignore"))
    return found[:_MOST]


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _ignored(folder: str, root: Path) -> Iterator[str]:
    """Yield the files of a folder that git ignores, relative to the root; none without git."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", folder]
    try:
        ran = subprocess.run(command, capture_output=True, check=False)
    except OSError:  # git is not installed
        return
    if ran.returncode == 0:
        yield from sorted(os.fsdecode(name) for name in ran.stdout.split(b"\0") if name)
