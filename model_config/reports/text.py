"""Texts and log excerpts for reports."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from engine import ConfigError
from model_config.reports.looks import count_looks
from model_config.results import CheckResult
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.formatting import clean, number, plural, seconds

EXIT_MEANINGS = {
    0: "nothing failed",
    1: "something failed",
    2: "the configuration cannot be used",
    4: "undecided: a strict gate needs more samples",
    130: "interrupted: the results are incomplete",
}
"""Meanings of the exit codes of a check."""


class Log(NamedTuple):
    """The end of a log file.

    Attributes:
        text: cleaned (:func:`tecoinfer_modelzoo.formatting.clean`), without blank lines at its end.
        left_out: number of bytes omitted before ``text``.
    """

    text: str
    left_out: int = 0

    def tail(self, lines: int, characters: int) -> str:
        """Return at most this many last lines and characters; a first line reports an omission."""
        end = "\n".join(self.text.split("\n")[-lines:])[-characters:]
        return end if len(end) == len(self.text) and not self.left_out else f"[... the beginning is omitted]\n{end}"


def read_log(path: Path, limit: int) -> Log:
    """Return the last ``limit`` bytes of a log; an empty log if the file is missing."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except OSError:
        return Log("")
    return Log(clean(data.decode("utf-8", errors="replace")).rstrip(), max(0, size - limit))


def write_text(text: str, path: Path) -> None:
    """Write a report; a missing folder is created.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"report {path} cannot be written: {error.strerror}; choose another place") from error


def headline(check: CheckResult) -> str:
    """Return the verdict of a check and its counts in one line."""
    head = f"{check.verdict.value}: {counts_line(check)}"
    return f"INTERRUPTED, results so far: {head}" if check.interrupted else head


def counts_line(check: CheckResult) -> str:
    """Return the number of cases with each verdict, and the number of problems outside the cases."""
    counts = [f"{count} {word}" for word, count in count_looks(check).items() if count] or ["no cases"]
    if check.problems:
        counts.append(f"{plural(len(check.problems), 'problem')} outside the cases")
    return ", ".join(counts)


def exit_line(check: CheckResult) -> str:
    """Return the exit code and its meaning."""
    return f"exit code {check.exit_code}: {EXIT_MEANINGS[check.exit_code]}"


def domain_of(run_dir: str) -> str:
    """Return the domain of a model's folder: the part below ``example``; empty if there is none."""
    parts = PurePosixPath(run_dir).parts
    after = parts[parts.index("example") + 1 :] if "example" in parts else ()
    return after[0] if len(after) > 1 else ""


def bucket(name: str) -> str:
    """Return the label of a bucket of times, such as ``≥ 1.2×`` or ``same``."""
    return f"≥ {name}×" if re.fullmatch(r"[0-9.]+", name) else name


def figure(value: float | None, unit: str) -> str:
    """Return a figure with its unit; times are formatted by :func:`tecoinfer_modelzoo.formatting.seconds`."""
    return seconds(value) if unit == "s" else f"{number(value)} {'×' if unit == 'ratio' else unit}"
