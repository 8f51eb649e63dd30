"""Licences of weights: what may be copied into a repository, which anybody may then redistribute."""

from __future__ import annotations

import re

from engine import ConfigError

FORBIDS = (
    (r"\bnc\b|non[ -_]?commercial", "forbids commercial use"),
    (r"\bnd\b|no[ -]derivatives", "forbids changes, and the forms are changed copies"),
    (r"research[ -](use[ -])?only|for research|academic|education(al)? (use )?only", "is for research only"),
    (r"all rights reserved|proprietary|confidential", "reserves all rights"),
    (r"\bunlicensed\b|no licen[cs]e|^none\b", "gives no rights"),
    (r"\bllama\b|\bgemma\b|\bopenrail\b|\brail\b", "restricts the use"),
)
"""Patterns of licences with a clause against a copy that anybody may use and redistribute, and that clause."""


def forbids(licence: str) -> str:
    """Return why a licence forbids a copy in the repository; empty if nothing in its name says so."""
    words = licence.lower().replace("_", " ")
    parts = words.replace("-", " ")
    return next((why for pattern, why in FORBIDS if re.search(pattern, words) or re.search(pattern, parts)), "")


def check_copy(licence: str, read_in: str, what: str) -> None:
    """Raise ConfigError if a licence forbids copying ``what`` into the repository.

    Args:
        licence: its name; empty: unknown, which the README then asks for. read_in: where it was read.
    """
    why = forbids(licence)
    if why:
        raise ConfigError(
            f"{what}: licence {licence!r} ({read_in}) {why}, so the weights cannot be copied into the repository; "
            "make them a package of teco fetch, which is read at run time, and give fetch:NAME/PATH"
        )
