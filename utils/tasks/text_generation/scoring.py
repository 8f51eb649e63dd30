"""Scoring of texts by a decoder: negative log-likelihood, in windows if a text is too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.tasks.common.generation import Decoder, log_probabilities


class Window(NamedTuple):
    """Part of a text: the tokens from ``begin`` to ``end``; those from ``first`` on are predicted in this window."""

    begin: int
    end: int
    first: int


def windows(tokens: int, size: int, stride: int) -> list[Window]:
    """Return windows of at most ``size`` tokens, ``stride`` apart; every token except the first is predicted once, in
    the first window that contains it.
    """
    found = [Window(0, min(size, tokens), 1)]
    while found[-1].end < tokens:
        last = found[-1]
        begin = last.begin + stride
        found.append(Window(begin, min(begin + size, tokens), last.end))
    return found


def costs(decoder: Decoder, texts: Sequence[Array], size: int, stride: int) -> list[float]:
    """Return the negative natural log-likelihood of each text, without its first token.

    Args:
        decoder: gets an empty cache for each round of windows. texts: int64, at least two tokens each.
        size: maximum tokens of a window. stride: tokens between starts of windows, at most ``size - 1``.
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
