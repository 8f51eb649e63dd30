"""Small words about texts: errors of others in one line of ours."""

from __future__ import annotations


def one_line(text: object) -> str:
    """Return a text, or an error's, with all white space as single blanks."""
    return " ".join(str(text).split())
