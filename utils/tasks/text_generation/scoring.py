"""What a decoder makes of texts: the cost of each token given those before it, in windows where a text is too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.tasks.common.generation import Decoder, log_probabilities


class Window(NamedTuple):
    """Part of a text: the tokens from ``begin`` to ``end``, of which those from ``first`` on are predicted here."""

    begin: int
    end: int
    first: int


def windows(tokens: int, size: int, stride: int) -> list[Window]:
    """Return windows of at most ``size`` tokens, each ``stride`` further, in which every token but the first is
    predicted once, with as many tokens before it as there are in the first window that holds it.
    """
    found = [Window(0, min(size, tokens), 1)]
    while found[-1].end < tokens:
        last = found[-1]
        begin = last.begin + stride
        found.append(Window(begin, min(begin + size, tokens), last.end))
    return found


def costs(decoder: Decoder, texts: Sequence[Array], size: int, stride: int) -> list[float]:
    """Return the cost of each text: the negative natural logarithm of the probability of all tokens but the first.

    Args:
        decoder: a cache is begun for each round of windows. texts: int64, at least two tokens each.
        size: tokens of a window at most. stride: how far the next one begins behind it, at most ``size - 1``.
    """
    cut = [windows(len(text), size, stride) for text in texts]
    found = [0.0] * len(texts)
    for turn in range(max(map(len, cut), default=0)):
        rows = [row for row, parts in enumerate(cut) if turn < len(parts)]
        parts = [cut[row][turn] for row in rows]
        fed = [texts[row][part.begin : part.end - 1] for row, part in zip(rows, parts, strict=True)]
        for chunk in decoder.chunks(fed, decoder.empty(len(rows))):
            for place, (row, part) in enumerate(zip(rows, parts, strict=True)):
                first = max(int(chunk.first[place]), part.first - part.begin - 1)
                end = int(chunk.end[place])
                if first < end:
                    offset = int(chunk.first[place])
                    logits = chunk.logits[place, first - offset : end - offset].astype(np.float32)
                    wanted = texts[row][part.begin + first + 1 : part.begin + end + 1]
                    found[row] -= float(log_probabilities(logits, wanted).sum())
    return found
