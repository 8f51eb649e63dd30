"""From a recogniser's pieces to text: where there are blanks, and where there are none."""

from __future__ import annotations

from collections.abc import Sequence

CONTINUED = "@@"
"""What a piece ends with whose word goes on (subword-nmt's)."""

BLANK = "▁"
"""What a piece begins with where a word begins (SentencePiece's)."""


def joined(pieces: Sequence[str]) -> str:
    """Return the text of pieces, each a character, a word, or a part of one.

    Parts of a word are put together; between two words there is a blank, and none beside a digit or a character of a
    script that writes without them (Chinese, Japanese).
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
    """Say whether no blank stands beside a character."""
    return character.isdigit() or "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff"
