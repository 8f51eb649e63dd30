"""Markdown helpers shared by the readers of README files."""

from __future__ import annotations

_BEGIN, _END = "<!--", "-->"


def without_comments(text: str) -> str:
    """Return a text without its HTML comments; an unterminated comment is kept.

    Does not use a regular expression: its run time is quadratic in the number of unterminated comments.
    """
    kept, place = [], 0
    while (begin := text.find(_BEGIN, place)) >= 0 and (end := text.find(_END, begin + len(_BEGIN))) >= 0:
        kept.append(text[place:begin])
        place = end + len(_END)
    return "".join([*kept, text[place:]])
