"""Results of a run: one line per entry of a database, counts, reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent


@dataclass
class Entry:
    """One entry of a database.

    Attributes:
        name: of the entry. counts: what was run how often (``forward``, ``backward``, ``refused``: the CPU raises and
            so does the device). wrong: what differs, a line each. reason: why it is not asked to be right, or "".
        absent: why there is nothing to compare with, or "". refuses: why the CPU refuses every sample, or "": the
            device must too.
    """

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    reason: str = ""
    absent: str = ""
    refuses: str = ""

    @property
    def right(self) -> bool:
        """Whether something ran, or was refused as expected, without differences."""
        expected, other = ("refused", "forward") if self.refuses else ("forward", "")
        return not self.wrong and self.counts[expected] > 0 and not self.counts[other]

    @property
    def state(self) -> str:
        """``right``, ``absent``, ``skipped`` (with a reason), ``stale`` (right, although excused) or ``wrong``."""
        if self.absent:
            return "absent"
        if self.reason:
            return "stale" if self.right else "skipped"
        return "right" if self.right else "wrong"

    def line(self) -> str:
        """Return why it is not right."""
        return self.absent or self.reason or "; ".join(self.wrong[:3]) or "no sample could be run on the CPU"


def excuses(family: str) -> Mapping[str, Mapping[str, str]]:
    """Return the excuses of a family from ``excuses.yaml``: by kind, by entry, the reason."""
    excused: dict[str, Any] = yaml.safe_load((HERE / "excuses.yaml").read_text(encoding="utf-8"))[family]
    return {kind: entries or {} for kind, entries in excused.items()}


def summary(entries: list[Entry]) -> dict[str, Any]:
    """Return the counts of a run, and each entry that is not simply right."""
    states = Counter(entry.state for entry in entries)
    counts = sum((entry.counts for entry in entries), Counter[str]())
    return {
        "entries": len(entries),
        **{state: states[state] for state in ("right", "absent", "skipped", "stale", "wrong")},
        "refusing": sum(bool(entry.refuses) for entry in entries),
        "comparisons": dict(sorted(counts.items())),
        "reasons": {entry.name: f"{entry.state}: {entry.line()}" for entry in entries if entry.state != "right"},
    }
