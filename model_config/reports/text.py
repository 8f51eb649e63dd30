"""How reports write figures, and how they make texts of unknown origin harmless."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from engine import ConfigError
from model_config.results import CheckResult, Verdict

EXIT_MEANINGS = {
    0: "nothing failed",
    1: "something failed",
    2: "the configuration cannot be used",
    4: "undecided: the samples are too few to tell",
    130: "interrupted: only what was done until then",
}
"""What the exit codes of a check mean."""

SYMBOLS = {Verdict.NONE: "–", Verdict.PASS: "✓", Verdict.INCONCLUSIVE: "?", Verdict.FAIL: "✗"}
"""A sign beside each verdict, so that colour alone says nothing."""

NO_VALUE = "–"

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles and links
    r"|[PX^_][^\x1b]*(?:\x1b\\)?"  # strings of DCS, SOS, PM and APC
    r"|[ -/]*[0-~])"
)
# What XML 1.0 forbids (production 2), C1 controls, and the marks that reorder text for the eye.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    """Return a text as a terminal would have left it, fit for XML.

    Escape sequences go; of a line that was overwritten with carriage returns (progress bars) the last state stays; any
    other character that XML forbids, or that reorders text, becomes U+FFFD.
    """
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    shown = "\n".join(_last_state(line) if "\r" in line else line for line in lines)
    return _FORBIDDEN.sub("\ufffd", shown)


def one_line(text: str) -> str:
    """Return a cleaned text with all white space as single blanks."""
    return " ".join(clean(text).split())


def _last_state(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part), "")


class Log(NamedTuple):
    """The end of a log file.

    Attributes:
        text: cleaned (:func:`clean`), without blank lines at its end.
        left_out: bytes before it that are not in ``text``.
    """

    text: str
    left_out: int = 0

    def tail(self, lines: int, characters: int) -> str:
        """Return at most so many of the last lines and characters, with a note in front where something is missing."""
        end = "\n".join(self.text.split("\n")[-lines:])[-characters:]
        return end if len(end) == len(self.text) and not self.left_out else f"[... the beginning is left out]\n{end}"


def read_log(path: Path, limit: int) -> Log:
    """Return the last ``limit`` bytes of a log; an empty log where there is no file to read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except OSError:
        return Log("")
    return Log(clean(data.decode("utf-8", errors="replace")).rstrip(), max(0, size - limit))


def write_text(text: str, path: Path) -> None:
    """Write a report; its folder is made where there is none.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise ConfigError(f"report {path} cannot be written: {error.strerror}; choose another place") from error


def headline(check: CheckResult) -> str:
    """Return the verdict of a check with its counts in one line."""
    head = f"{check.verdict.value}: {counts_line(check)}"
    return f"INTERRUPTED, until then {head}" if check.interrupted else head


def counts_line(check: CheckResult) -> str:
    """Return how many cases have each verdict, and how many problems there are outside any."""
    counts = [f"{count} {verdict.value}" for verdict, count in count_verdicts(check).items() if count] or ["no cases"]
    if check.problems:
        counts.append(f"{plural(len(check.problems), 'problem')} outside the cases")
    return ", ".join(counts)


def count_verdicts(check: CheckResult) -> dict[Verdict, int]:
    """Return how many cases have each verdict, the worst verdict first."""
    verdicts = [case.verdict for case in check.cases]
    return {verdict: verdicts.count(verdict) for verdict in reversed(Verdict)}


def exit_line(check: CheckResult) -> str:
    """Return the exit code with its meaning."""
    return f"exit code {check.exit_code}: {EXIT_MEANINGS[check.exit_code]}"


def plural(count: int, word: str) -> str:
    """Return a count with its word, such as ``2 cases``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def domain_of(run_dir: str) -> str:
    """Return the domain of a model's folder: the part below ``example``; empty where there is none."""
    parts = PurePosixPath(run_dir).parts
    after = parts[parts.index("example") + 1 :] if "example" in parts else ()
    return after[0] if len(after) > 1 else ""


def seconds(value: float | None) -> str:
    """Return a duration, such as ``1.23 ms`` or ``2 min 05 s``."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    if abs(value) >= 60:
        whole = round(value)
        return f"{whole // 60} min {whole % 60:02d} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if abs(value) * factor >= 1 or value == 0:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def bucket(name: str) -> str:
    """Return the name of a bucket of times, such as ``≥ 1.2×`` or ``same``."""
    return f"≥ {name}×" if re.fullmatch(r"[0-9.]+", name) else name


def figure(value: float | None, unit: str) -> str:
    """Return a figure with its unit; a time as :func:`seconds` writes it."""
    return seconds(value) if unit == "s" else f"{number(value)} {'×' if unit == 'ratio' else unit}"


def number(value: float | None) -> str:
    """Return a figure with six significant digits."""
    return NO_VALUE if value is None or not math.isfinite(value) else f"{value:.6g}"


def percent(value: float | None) -> str:
    """Return a signed relative difference in percent, such as ``-0.12 %``."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    return "0 %" if value == 0 else f"{value * 100:+.3g} %".replace("-", "−")


def share(value: float) -> str:
    """Return an unsigned share in percent, such as ``0.1 %``."""
    return f"{value * 100:.3g} %"


def memory(value: int | None) -> str:
    """Return bytes in MiB."""
    return NO_VALUE if value is None else f"{value / 2**20:.0f} MiB"


def facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the environment as names and texts; of a mapping in it, its members."""
    flat: list[tuple[str, str]] = []
    for name, value in environment.items():
        flat += facts(value) if isinstance(value, Mapping) else [(one_line(str(name)), one_line(str(value)))]
    return flat
