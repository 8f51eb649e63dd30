"""Markdown as text: what every reader of a README needs."""

from __future__ import annotations

_BEGIN, _END = "<!--", "-->"


def without_comments(text: str) -> str:
    """Return a text without its comments; one that does not end is left as it is.

    Not by a regular expression: that looks for the end from every beginning of a comment that has none.
    """
    kept, place = [], 0
    while (begin := text.find(_BEGIN, place)) >= 0 and (end := text.find(_END, begin + len(_BEGIN))) >= 0:
        kept.append(text[place:begin])
        place = end + len(_END)
    return "".join([*kept, text[place:]])
