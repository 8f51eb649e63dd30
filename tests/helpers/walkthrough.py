"""Follow a docs page: run its commands and write its files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>file|append|section): (?P<where>.+?) -->\n)?"
    r"^(?P<fence>`{3,})(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


class Action(NamedTuple):
    """One thing to do: run a ``bash`` text, or change a file (``file``, ``append``, ``section``)."""

    kind: str
    where: str
    text: str


def actions(page: str) -> Iterator[Action]:
    """Yield the actions of a page in order; blocks in other languages are ignored."""
    for block in _BLOCK.finditer(page):
        kind = block["kind"] or block["language"]
        if kind in ("bash", "file", "append", "section"):
            yield Action(kind, block["where"] or "", block["text"])


def change(action: Action, root: Path) -> None:
    """Make a change: write a file, append to one, or replace a section of a README."""
    name, _, heading = action.where.partition(": ")
    file = root / name
    if action.kind == "file":
        file.write_text(action.text, encoding="utf-8")
        return
    before = file.read_text(encoding="utf-8")
    if action.kind == "append":
        file.write_text(before + action.text, encoding="utf-8")
        return
    start = before.index(f"{heading}\n")
    end = re.compile(r"^#{1,6} \D{0,3}\d", re.MULTILINE).search(before, start + len(heading))
    after = before[end.start() :] if end else ""
    file.write_text(before[:start] + action.text + ("\n" if after else "") + after, encoding="utf-8")


def bash(text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run the commands of a page; return their output."""
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr}"
    return done.stdout


def follow(page: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Perform all actions of a page in order; return the output of its commands."""
    printed = ""
    for action in actions(page):
        if action.kind == "bash":
            printed += bash(action.text, folder, environment)
        else:
            change(action, folder)
    return printed


def shown(page: str, language: str = "") -> list[str]:
    """Return the lines that a page shows as printed: those of its blocks of this language that no comment names."""
    blocks = (block for block in _BLOCK.finditer(page) if not block["kind"] and block["language"] == language)
    return [line for block in blocks for line in block["text"].splitlines()]
