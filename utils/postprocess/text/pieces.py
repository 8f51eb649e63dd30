"""Text from a recogniser's pieces, with or without spaces between them."""

from __future__ import annotations

from collections.abc import Sequence

CONTINUED = "@@"
"""Suffix of a piece whose word continues (subword-nmt)."""

BLANK = "▁"
"""Prefix of a piece at the start of a word (SentencePiece)."""


def joined(pieces: Sequence[str]) -> str:
    """Return the text of pieces, each a character, a word, or a part of one.

    Parts of a word are joined; words are separated by a space, except next to a digit or a character of a script
    without spaces (Chinese, Japanese).
    """
    if any(BLANK in piece for piece in pieces):
        return " ".join("".join(pieces).replace(BLANK, " ").split())
    text, going_on = "", True
    for piece in pieces:
        own = piece.removesuffix(CONTINUED)
        if own and text and not going_on and not (_unspaced(text[-1]) or _unspaced(own[0])):
            text += " "
        text += own
        going_on = piece.endswith(CONTINUED)
    return text


def _unspaced(character: str) -> bool:
    """Return whether a character is written without spaces around it."""
    return character.isdigit() or "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"
