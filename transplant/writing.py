"""Output of a migrated project: copy, list of changes, list of operators, log and launcher."""

from __future__ import annotations

import csv
import difflib
import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError, DataError
from tecoinfer_modelzoo.formatting import plural
from transplant.edits import Lines
from transplant.project import CHANGES, LAUNCHER, LOG, OPERATORS, Outcome
from transplant.sheet import sheet

SUFFIX = "_msft"
"""Suffix of the output folder, after the name of the scripts' folder."""

COLUMNS = ("file", "line", "column", "end_line", "end_column", "start", "end", "rule", "old", "new", "why")
"""Columns of ``change_list.csv``: lines and columns from 1, start and end in characters of the file from 0."""


def place(root: Path, output: Path, force: bool) -> Path:
    """Return the output folder of a run; raise ConfigError if it already exists."""
    target = Path(os.path.abspath(output)) / f"{root.name or 'root'}{SUFFIX}"
    if os.path.lexists(target):
        ours = target.is_dir() and not target.is_symlink() and ((target / LOG).is_file() or not any(target.iterdir()))
        if not ours:
            raise ConfigError(f"{target} exists, and was not written by this command; choose another --out")
        if not force:
            raise ConfigError(f"{target} exists; use --force to overwrite it, or choose another --out")
    return target


def write(root: Path, only: str, target: Path, outcome: Outcome, launcher: str) -> None:
    """Write the output to a temporary folder, and rename it when complete; raise DataError if it cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}_", dir=target.parent))
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}; choose another --out") from error
    try:
        _fill(root, partial, outcome, launcher)
        shutil.copymode(root, partial)
        partial.chmod(partial.stat().st_mode | 0o700)
        old = None
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}_", dir=target.parent)) / "old"
            target.rename(old)
        partial.rename(target)
        if old is not None:
            shutil.rmtree(old.parent)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror or error}; choose another --out") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial)


def _fill(root: Path, folder: Path, outcome: Outcome, launcher: str) -> None:
    for name in outcome.files:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if name in outcome.written:
            to.write_bytes(outcome.written[name])
            shutil.copymode(root / name, to)
        else:
            shutil.copy2(root / name, to)
    for name, points in outcome.links.items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.symlink_to(points)
    (folder / LOG).write_text(log_text(outcome), encoding="utf-8")
    (folder / CHANGES).write_bytes(change_list(outcome).encode("utf-8-sig"))
    (folder / OPERATORS).write_bytes(operator_sheet(outcome))
    if launcher:
        (folder / LAUNCHER).write_text(launcher, encoding="utf-8")
        (folder / LAUNCHER).chmod(0o755)


def change_list(outcome: Outcome) -> str:
    """Return every change as CSV, sufficient to create the output from the input."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    lines = {name: Lines(before) for name, (before, _) in outcome.texts.items()}
    for change in outcome.changes:
        edit = change.edit
        first, last = lines[change.file].place(edit.start), lines[change.file].place(edit.end)
        writer.writerow([change.file, *first, *last, edit.start, edit.end, edit.rule, edit.old, edit.new, edit.why])
    return text.getvalue()


def operator_sheet(outcome: Outcome) -> bytes:
    """Return the operators and ``torch.cuda`` names that the card lacks, as a sheet."""
    rows: list[Sequence[str | int]] = [("file", "place", "operator", "on the card", "what to do")]
    for one in outcome.operators:
        fallback = one.level == "CPU fallback"
        fix = (
            "nothing: the CPU computes it, and its simulated price is approximate" if fallback else "run it on the CPU"
        )
        rows.append((one.file, one.place, one.name, one.level, fix))
    for note in outcome.notes:
        if note.reason.startswith("torch.sdaa has no "):
            rows.append((note.file, note.place, note.what, "missing", note.fix))
    return sheet(rows, "unsupported_op")


def log_text(outcome: Outcome) -> str:
    """Return the log of the run: a line for each changed file and each place for manual work."""
    lines = [f"INFO {plural(len(outcome.files), 'file')} read, {plural(len(outcome.written), 'file')} changed"]
    counts: dict[str, int] = {}
    for change in outcome.changes:
        counts[change.file] = counts.get(change.file, 0) + 1
    lines += [f"INFO {name}: {plural(count, 'change')}" for name, count in counts.items()]
    for note in outcome.problems:
        lines.append(f"ERROR {where(note.file, note.place)}: {note.reason}; {note.fix}")
    for note in outcome.notes:
        level = "WARNING" if note.fix else "INFO"
        lines.append(
            f"{level} {where(note.file, note.place)}: {note.what}: {note.reason}"
            + (f"; {note.fix}" if note.fix else "")
        )
    return "\n".join(lines) + "\n"


def where(file: str, place: str) -> str:
    """Return a place in the form of editors: ``file:line``."""
    return f"{file}:{place}" if place else file


def diff_text(outcome: Outcome) -> str:
    """Return all changes as a unified diff."""
    pieces = []
    for name, (before, after) in outcome.texts.items():
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
            pieces.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(pieces)


def launcher_text(main: str) -> str:
    """Return the shell script that starts a process for each device."""
    return f"""\
#!/bin/bash
# Starts one process for each device: bash {LAUNCHER} [arguments of the script]
# SDAA_VISIBLE_DEVICES selects devices, NPROC_PER_NODE their number (default: all visible ones).
set -eu
cd "$(dirname "$0")"
count=${{NPROC_PER_NODE:-$(python -c "import torch, torch_sdaa; print(torch.sdaa.device_count())" 2>/dev/null)}}
exec python -m torch.distributed.run --standalone --nproc_per_node="$count" {_quoted(main)} "$@"
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
