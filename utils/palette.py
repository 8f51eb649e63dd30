"""Colours of classes: the palette of Pascal VOC, which most masks use."""

from __future__ import annotations

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""


def palette(count: int = 256) -> list[Colour]:
    """Return VOC's colours of the first classes: the bits of a class number go to red, green and blue in turn."""
    return [(_channel(i, 0), _channel(i, 1), _channel(i, 2)) for i in range(count)]


def _channel(number: int, channel: int) -> int:
    """Return every third bit of a number, starting at the channel's bit, in reversed order."""
    return sum((number >> (3 * place + channel) & 1) << (7 - place) for place in range(8))
