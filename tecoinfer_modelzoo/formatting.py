"""Formatting of numbers in reports and tables, and cleaning of untrusted text."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tecoinfer_modelzoo.text import one_line, printable

NO_VALUE = "–"

_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles and links
    r"|[PX^_][^\x1b]*(?:\x1b\\)?"  # strings of DCS, SOS, PM and APC
    r"|[ -/]*[0-~])"
)
# Characters invalid in XML 1.0 (production 2), C1 controls, and bidirectional formatting characters.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


_FIGURE = re.compile(r"[+-][0-9.]+(e[+-]?[0-9]+)?( ?%)?\Z")  # A single signed number, such as ``+3.1 %``


def clean(text: str) -> str:
    """Return a text as a terminal would display it, valid in XML.

    Escape sequences are removed; of a line overwritten with carriage returns (progress bars) the last state is kept;
    other characters that are invalid in XML or reorder text become U+FFFD.
    """
    lines = _ANSI.sub("", text).replace("\r\n", "\n").split("\n")
    shown = "\n".join(next(filter(None, reversed(line.split("\r"))), "") for line in lines)
    return _FORBIDDEN.sub("\ufffd", shown)


def clean_line(text: str) -> str:
    """Return an untrusted text as one line: cleaned (:func:`clean`), with white space collapsed to single blanks."""
    return one_line(clean(text))


def plural(count: int, word: str) -> str:
    """Return a count with its word, such as ``2 cases``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


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


def number(value: float | None) -> str:
    """Return a number with six significant digits."""
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
    """Return a number of bytes in MiB."""
    return NO_VALUE if value is None else f"{value / 2**20:.0f} MiB"


def facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return an environment as pairs of name and text; nested mappings are flattened."""
    flat: list[tuple[str, str]] = []
    for name, value in environment.items():
        flat += facts(value) if isinstance(value, Mapping) else [(clean_line(str(name)), clean_line(str(value)))]
    return flat


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines with aligned columns; line breaks in cells are escaped."""
    rows = [[printable(cell, keep="") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def as_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV text with all digits; texts that spreadsheets evaluate are prefixed with an apostrophe."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_escape_formula, row) for row in rows)
    return text.getvalue()


def _escape_formula(cell: Any) -> Any:
    is_formula = isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") and len(cell) > 1
    return f"'{cell}" if is_formula and not _FIGURE.match(cell) else cell
