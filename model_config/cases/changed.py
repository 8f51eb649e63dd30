"""Cases affected by a change: of their entry, their folder, their data, or files that their scripts use."""

from __future__ import annotations

import fnmatch
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.case_file import read_entries
from model_config.cases.config import ROOT, Case, relative
from model_config.cases.imports import Imports
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import one_line

EVERYTHING = ("pyproject.toml", "constraints*.txt", "model_config/*.py")
"""Files that affect every case: the dependencies, and the check itself."""


def changed_cases(cases: Sequence[Case], rev: str, root: Path = ROOT) -> tuple[list[Case], dict[str, str]]:
    """Return the cases that a change affects, in their order, and the reason by case name.

    The change is the difference from the merge base with ``rev``: commits, uncommitted changes, and untracked files
    (except ignored ones).
    Args:
        rev: a commit, branch or tag.

    Raises:
        ConfigError: not a git repository, ``rev`` is unknown, or the local history is too short.
    """
    base = _merge_base(rev, root)
    changed = _changed_files(base, root)
    imports = Imports(root, [name for name in changed if not (root / name).exists()])
    before = {source: _described(_at(base, relative(source, root), root)) for source in {case.source for case in cases}}
    why = {case.name: _reason(case, changed, imports, before[case.source]) for case in cases}
    touched = {name: reason for name, reason in why.items() if reason}
    return [case for case in cases if case.name in touched], touched


def _changed_files(base: str, root: Path) -> list[str]:
    """Return the files that differ from a commit, and untracked files, sorted."""
    diff = _git(root, "diff", "--name-only", "--no-renames", "--relative", "-z", base).split("\0")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return sorted({name for name in (*diff, *untracked) if name})


def _reason(case: Case, changed: Sequence[str], imports: Imports, before: dict[str, Any]) -> str:
    """Return the reason why a change affects a case; empty if it does not."""
    source = relative(case.source, imports.root)
    if source in changed and before.get(case.name) != _described(_text(case.source)).get(case.name):
        return f"its entry in {source} {'changed' if case.name in before else 'is new'}"
    if found := _matching(changed, lambda name: any(fnmatch.fnmatch(name, one) for one in EVERYTHING)):
        return f"{found} changed, which every case depends on"
    if found := _matching(changed, lambda name: name.startswith(f"{case.run_dir}/")):
        return f"{found} changed, in its folder"
    used = imports.of_case(case)
    if found := _matching(changed, lambda name: name in used):
        return f"{found} changed, which its scripts use"
    folders = _data(case, imports.root)
    if found := _matching(changed, lambda name: any(f"{name}/".startswith(f"{folder}/") for folder in folders)):
        return f"{found} changed, which is its data"
    return ""


def _matching(names: Sequence[str], wanted: Callable[[str], bool]) -> str:
    found = [name for name in names if wanted(name)]
    return f"{found[0]} and {len(found) - 1} more" if len(found) > 1 else "".join(found)


def _data(case: Case, root: Path) -> list[str]:
    """Return the data sets of a case that lie in the repository, relative to it."""
    paths = {path for step in case.steps for path in step.data_paths.values()}
    places = [
        os.path.relpath(os.path.realpath(root / case.run_dir / path), os.path.realpath(root)) for path in sorted(paths)
    ]
    return [place for place in places if not place.startswith("..")]


def _described(text: str) -> dict[str, Any]:
    """Return the entries of a file by case name, without invalid ones."""
    return {entry.name: entry.data for entry in read_entries(text)[0] if not entry.troubles}


def _text(file: Path) -> str:
    try:
        return text_of(file, "replace")
    except OSError:  # reported when the cases are read
        return ""


def _merge_base(rev: str, root: Path) -> str:
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
    except ConfigError as error:
        _git(root, "rev-parse", "--git-dir")  # raises a clearer error if this is not a repository
        shallow = _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
        fix = "fetch the whole history: git fetch --unshallow" if shallow else "check the name, or git fetch it"
        raise ConfigError(f"--changed_since {rev}: no such commit in {root}; {fix}") from error
    try:
        return _git(root, "merge-base", commit.strip(), "HEAD").strip()
    except ConfigError as error:
        fix = "fetch the whole history: git fetch --unshallow"
        raise ConfigError(f"--changed_since {rev}: has no commit in common with HEAD here; {fix}") from error


def _at(commit: str, name: str, root: Path) -> str:
    """Return the text of a file at a commit; empty if it did not exist."""
    try:
        return _git(root, "show", f"{commit}:./{name}")
    except ConfigError:
        return ""


def _git(root: Path, *words: str) -> str:
    try:
        ran = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)  # noqa: S607
    except OSError as error:
        raise ConfigError(f"--changed_since needs git: {error.strerror}; install it") from error
    if ran.returncode != 0:
        said = one_line(ran.stderr.decode(errors="replace")) or f"git {words[0]} failed"
        raise ConfigError(f"--changed_since: {root}: {said}; run the check in a git checkout")
    return ran.stdout.decode(errors="surrogateescape")
