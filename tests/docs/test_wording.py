"""Plain wording of the sources: the number of idioms that the project's style excludes stays low."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

import pytest
from support import ROOT

LIMIT = 60
"""Number of lines with a marker from which the test fails; names, JSON keys and data need some."""

SHOWN = 20
"""Number of lines in a failure message."""

MARKERS = re.compile(
    r"\b(is|are|was) no [a-z]+|\b(told|nobody|whoever|surest|own up|its own affair|for ever)\b", re.IGNORECASE
)
PICTURE = re.compile("picture", re.IGNORECASE)


@cache
def sources() -> tuple[str, ...]:
    """Return the paths of the committed Python files without tests and benchmarks; skip outside a repository."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    listed = subprocess.run([git, "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git ls-files failed: {listed.stderr.strip()}")
    paths = [path for path in listed.stdout.split("\0") if path and not path.startswith(("tests/", "benchmarks/"))]
    return tuple(path for path in paths if (ROOT / path).is_file())


def matching_lines(pattern: re.Pattern[str]) -> list[str]:
    """Return the lines of the sources with a match, as ``path:line: text``."""
    found = []
    for path in sources():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        found += [f"{path}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


@pytest.mark.parametrize(
    ("pattern", "fix"),
    [
        (MARKERS, 'write "is not a", "X is missing", "without X", "reported" or "warned" instead'),
        (PICTURE, 'write "image" instead'),
    ],
    ids=["markers", "picture"],
)
def test_idioms_are_rare(pattern: re.Pattern[str], fix: str) -> None:
    found = matching_lines(pattern)
    if len(found) >= LIMIT:
        pytest.fail("\n".join([f"{len(found)} lines, limit {LIMIT}; {fix}:", *found[:SHOWN]]), pytrace=False)


def test_markers_are_found_in_text() -> None:
    flagged = ["There is no file", "warnings were told", "Nobody reads it", "kept for ever"]
    plain = ["the file is not a graph", "the file is missing", "an untold case", "no file was found"]
    assert [bool(MARKERS.search(line)) for line in flagged + plain] == [True] * 4 + [False] * 4
