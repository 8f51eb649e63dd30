"""The table of docs/reference/model_sweep.md: one line per architecture, from the file of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.families import all_rows
from sweep.judge import AGREES, FINDING, REFUSED

BEGIN, END = "<!-- the table: begin -->", "<!-- the table: end -->"
HEAD = "| architecture | parameters | float32 | float16 | relative to torch's half | bfloat16 | int8 | refused |"

Outcome = Mapping[str, Any]


def written(page: Path, results: Mapping[str, Any]) -> None:
    """Put the table between the page's two marks.

    Raises:
        ValueError: the page lacks them.
    """
    before = page.read_text(encoding="utf-8")
    if BEGIN not in before or END not in before:
        raise ValueError(f"{page}: has no lines {BEGIN!r} and {END!r} to put the table between")
    head, rest = before.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def table(results: Mapping[str, Any]) -> str:
    """Return a sentence of counts, and the table, as Markdown."""
    rows = dict(sorted(results["rows"].items(), key=lambda item: _place(item[0])))  # they came as they finished
    lines = [counts(results), "", HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    family = ""
    for name, row in rows.items():
        if row["family"] != family:
            family = row["family"]
            lines.append(f"| **{family}** | | | | | | | |")
        lines.append(line(name, row["outcomes"]))
    return "\n".join(lines)


def _place(name: str) -> int:
    """Return the index of an architecture in the list of all; removed ones come last."""
    names = list(all_rows())
    return names.index(name) if name in names else len(names)


def counts(results: Mapping[str, Any]) -> str:
    """Return what came of all combinations, and the versions, in sentences."""
    rows = results["rows"]
    every = [one["verdict"]["status"] for row in rows.values() for one in row["outcomes"]]
    by = {status: every.count(status) for status in (AGREES, REFUSED, FINDING)}
    packages = ", ".join(f"{name} {text}" for name, text in results["versions"].items() if text)
    return (
        f"{len(rows)} architectures, {len(every)} combinations: {by[AGREES]} agree, {by[REFUSED]} are refused for the "
        f"reason that was expected, {by[FINDING]} are neither. {packages}."
    )


def line(name: str, outcomes: Sequence[Outcome]) -> str:
    """Return the line of one architecture: of every dtype the worst of its combinations."""
    half = _of(outcomes, "float16")
    ratio = max((_ratio(one) for one in half if one["verdict"]["status"] == AGREES), default=None)
    how = " (rounded)" if any(one["half"] == "rounded" for one in half) else ""
    cells = [
        name,
        f"{max((one['parameters'] for one in outcomes), default=0):,}",
        _worst(_of(outcomes, "float32")),
        _worst(half),
        "" if ratio is None else f"{ratio:.2f}{how}",
        _worst(_of(outcomes, "bfloat16")),
        _cosine(_of(outcomes, "int8")),
        "; ".join(_refusals(outcomes)),
    ]
    return f"| {' | '.join(cells)} |"


def _of(outcomes: Iterable[Outcome], dtype: str) -> list[Outcome]:
    return [one for one in outcomes if dtype in one["combination"].split("/")[1].split()]


def _ratio(outcome: Outcome) -> float:
    error, peer = outcome["verdict"]["error"], outcome["verdict"]["peer"]
    return error / peer if peer else 0.0


def _worst(outcomes: Sequence[Outcome]) -> str:
    """Return the largest error, or that there is a finding."""
    if any(one["verdict"]["status"] == FINDING for one in outcomes):
        return "**finding**"
    errors = [one["verdict"]["error"] for one in outcomes if one["verdict"]["status"] == AGREES]
    return f"{max(errors):.1e}" if errors else "refused"


def _cosine(outcomes: Sequence[Outcome]) -> str:
    if any(one["verdict"]["status"] == FINDING for one in outcomes):
        return "**finding**"
    found = [one["verdict"]["error"] for one in outcomes if one["verdict"]["status"] == AGREES]
    return f"{min(found):.4f}" if found else "refused"


def _refusals(outcomes: Iterable[Outcome]) -> list[str]:
    """Return each reason once, with where it was given."""
    where: dict[str, list[str]] = {}
    for one in outcomes:
        if one["verdict"]["status"] != AGREES:
            where.setdefault(_short(one["verdict"]["reason"]), []).append(one["combination"])
    return [f"{_places(at)}: {reason}" for reason, at in where.items()]


def _places(combinations: Sequence[str]) -> str:
    """Return combinations as ``dynamo export`` or ``cpu int8``, those of both exporters as one."""
    return ", ".join(dict.fromkeys(one.replace("/", " ") if one.endswith("/export") else one.split("/")[1]
                                   for one in combinations))  # fmt: skip


def _short(reason: str, longest: int = 160) -> str:
    """Return a reason without folders and without the way out, fit for a cell."""
    plain = re.sub(r"/\S*/(?=[^/\s]+\.onnx)", "", reason).replace("|", "\\|").split("; ")[0]
    return plain if len(plain) <= longest else f"{plain[:longest]}..."
