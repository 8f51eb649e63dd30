"""Images larger than a model's input: cut into overlapping tiles, and the tiles' maps joined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from engine import Array


class Tiles(NamedTuple):
    """Grid of the tiles of an image.

    Attributes:
        size: height and width of the image. side: height and width of a tile.
        rows, columns: first row and column of the tiles. An image smaller than a tile has one, which extends beyond it.
    """

    size: tuple[int, int]
    side: tuple[int, int]
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def __len__(self) -> int:
        """Return the number of tiles."""
        return len(self.rows) * len(self.columns)

    @classmethod
    def over(cls, size: tuple[int, int], side: tuple[int, int], overlap: int) -> Tiles:
        """Return the fewest tiles that cover an image with at least this overlap in pixels, evenly spaced."""
        rows, columns = (_starts(whole, part, overlap) for whole, part in zip(size, side, strict=True))
        return cls(size, side, rows, columns)

    def cut(self, pixels: Array) -> Array:
        """Return the tiles of a C x H x W image, row by row, N x C x h x w of the same dtype; 0 beyond the image."""
        height, width = self.side
        found = np.zeros((len(self), len(pixels), height, width), pixels.dtype)
        places = [(row, column) for row in self.rows for column in self.columns]
        for tile, (row, column) in zip(found, places, strict=True):
            part = pixels[:, row : row + height, column : column + width]
            tile[:, : part.shape[1], : part.shape[2]] = part
        return found

    def joined(self, maps: Sequence[Array]) -> Array:
        """Return the h x w maps of the tiles as H x W; in overlaps, each provides the pixels that lie deeper in it."""
        height, width = self.size
        result = np.empty((height, width), maps[0].dtype)
        down, across = _shares(self.rows, self.side[0], height), _shares(self.columns, self.side[1], width)
        places = [
            (row, column)
            for row in zip(self.rows, down, strict=True)
            for column in zip(self.columns, across, strict=True)
        ]
        for one, ((row, (top, bottom)), (column, (left, right))) in zip(maps, places, strict=True):
            result[top:bottom, left:right] = one[top - row : bottom - row, left - column : right - column]
        return result


def _starts(whole: int, part: int, overlap: int) -> tuple[int, ...]:
    if whole <= part:
        return (0,)
    count = -(-(whole - overlap) // max(1, part - overlap))
    return tuple(round(i * (whole - part) / (count - 1)) for i in range(count))


def _shares(starts: Sequence[int], part: int, whole: int) -> list[tuple[int, int]]:
    """Return the range that each tile provides: up to the middle of its overlap with each neighbour."""
    middles = [(after + before + part) // 2 for before, after in pairwise(starts)]
    return list(zip([0, *middles], [*middles, whole], strict=True))
