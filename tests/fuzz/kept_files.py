"""Runs that write results: the files exist, are readable, and match the printed results."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import random
import re
from pathlib import Path

from tests.fuzz.case import Case, Outcome

WRITTEN = ("out", "answers.json", "answers.samples.csv", "answers.samples.npz")


def with_files(rng: random.Random, folder: Path, case: Case) -> Case:
    """Return, sometimes, a case whose script also writes JSON, and renderings for single samples."""
    script = Path(case.words[0]).name
    if not script.startswith("example_") or "--json" in case.words or rng.random() < 0.7:
        return case
    words = [*case.words, "--json", str(folder / "answers.json")]
    if script != "example_valid.py" and rng.random() < 0.7:
        words += ["--save", str(folder / "out")]
    before = frozenset(os.listdir(folder))
    judge = functools.partial(_judge, case, folder, before, script == "example_valid.py")
    return dataclasses.replace(case, words=tuple(words), what=f"{case.what}; files are written", judge=judge)


def _judge(case: Case, folder: Path, before: frozenset[str], valid: bool, outcome: Outcome) -> str | None:
    if wrong := case.judge(outcome):
        return wrong
    more = sorted(set(os.listdir(folder)) - before - {*WRITTEN})
    if more:
        return f"wrote {more[0]!r}, which was not requested"
    path = folder / "answers.json"
    if not path.is_file():
        return "exit code 0 without the JSON that was asked for" if outcome.code == 0 else None
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except ValueError as error:
        return f"the JSON cannot be read: {error}"
    if valid:
        found = re.search(r"^eval_metric (\S+)", outcome.out, re.MULTILINE)
        said, kept = found and found[1], data.get("metric")
        same = (
            said == "nan" if kept is None else said is not None and abs(float(said) - kept) <= 1e-5 * max(1, abs(kept))
        )
        return None if same else f"printed metric {said}, written {kept}"
    return _drawn(folder / "out", len(data["answers"]))


def _drawn(out: Path, answers: int) -> str | None:
    leads = [path for path in out.rglob("*") if path.is_symlink()] if out.is_dir() else []
    if leads:
        return f"{leads[0].name!r} is a link"
    count = sum(path.is_file() for path in out.rglob("*")) if out.is_dir() else answers
    return f"{answers} answers and {count} files" if count < answers else None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not JSON")
