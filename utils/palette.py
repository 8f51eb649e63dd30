"""The colours of classes: Pascal VOC's palette, in which most masks are saved."""

from __future__ import annotations

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""


def palette(count: int = 256) -> list[Colour]:
    """Return VOC's colours of the first classes: the bits of a class number, dealt to red, green and blue in turn."""
    return [(_dealt(i, 0), _dealt(i, 1), _dealt(i, 2)) for i in range(count)]


def _dealt(number: int, channel: int) -> int:
    """Return every third bit of a number from a channel's on, the lowest as the highest of eight."""
    return sum((number >> (3 * place + channel) & 1) << (7 - place) for place in range(8))
