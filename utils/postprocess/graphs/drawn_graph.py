"""Drawing of a graph: edges between nodes, with optional labels."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import Array
from utils.datasets.graphs.files import Look

SIDE, MARGIN = 480, 40
"""Maximum length of the image's sides, and margin around the graph, in pixels."""

SPRINGS = 200
"""Maximum nodes of a graph without positions that is laid out by springs; a larger one is drawn as a circle."""

ROUNDS = 120

COLOURS = {
    "N": (48, 80, 216), "O": (208, 32, 32), "S": (160, 128, 0), "F": (32, 144, 64), "C": (32, 144, 64),
    "B": (150, 60, 30), "I": (120, 30, 140), "P": (208, 110, 0),
}  # fmt: skip
"""Colours of labels by their first letter (chlorine like fluorine); others are black."""

INK = (40, 40, 40)


def draw_graph(look: Look, edges: Array) -> Image.Image:
    """Draw a graph on white, as an RGB image at most 480 pixels wide and high.

    ``edges`` are int64 [2, E]; an edge listed in both directions is drawn once, and loops are not drawn.
    """
    places, size, unit = _on_paper(np.asarray(look.points, np.float64), edges)
    image = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(image)
    width = max(2, round(unit / 14))
    drawn = set[tuple[int, int]]()
    for (source, target), order in zip(edges.T.tolist(), look.orders.tolist(), strict=True):
        pair = (min(source, target), max(source, target))
        if source == target or pair in drawn:
            continue
        drawn.add(pair)
        _edge(draw, places[source], places[target], order, unit, width)
    font = ImageFont.load_default(size=max(11, min(24, round(unit * 0.42))))
    for place, label in zip(places, look.labels, strict=True):
        if label:
            _label(draw, place, label, font)
        elif not any(look.labels):
            radius = width * 2
            draw.ellipse([*(place - radius), *(place + radius)], fill=INK)
    return image


def laid_out(nodes: int, edges: Array) -> Look:
    """Return deterministic positions for a graph without positions: neighbours attract, all nodes repel.

    Forces of Fruchterman and Reingold (1991), from a circle, in which over :data:`SPRINGS` nodes stay.
    """
    angles = 2 * math.pi * np.arange(nodes) / max(nodes, 1)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ideal = 2 / math.sqrt(max(nodes, 1))
    source, target = edges[:, edges[0] != edges[1]]
    for step in range(ROUNDS if 1 < nodes <= SPRINGS else 0):
        away = points[:, None] - points[None]
        far = np.maximum(np.linalg.norm(away, axis=2), 1e-6)
        move = (away * (ideal**2 / far**2)[:, :, None]).sum(axis=1)
        pull = (points[target] - points[source]) * (far[source, target] / ideal)[:, None]
        np.add.at(move, source, pull)
        np.add.at(move, target, -pull)
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        points = points + move / length * np.minimum(length, 0.2 * (1 - step / ROUNDS))
    return Look(points.astype(np.float32), [""] * nodes, np.ones(edges.shape[1], np.int8))


def _on_paper(points: Array, edges: Array) -> tuple[Array, tuple[int, int], float]:
    """Return positions in pixels, the image's size, and the median length of an edge."""
    low, high = points.min(axis=0), points.max(axis=0)
    ends = points[edges[0]] - points[edges[1]] if edges.size else np.zeros((0, 2))
    lengths = np.linalg.norm(ends, axis=1)
    usual = float(np.median(lengths[lengths > 0])) if (lengths > 0).any() else 1.0
    extent = float((high - low).max())
    scale = min(60 / usual, (SIDE - 2 * MARGIN) / extent if extent else math.inf)
    size = np.maximum((high - low) * scale + 2 * MARGIN, 160)
    middle = (points - (low + high) / 2) * scale * np.array([1, -1])
    return middle + size / 2, (math.ceil(size[0]), math.ceil(size[1])), usual * scale


def _edge(draw: ImageDraw.ImageDraw, start: Array, end: Array, order: int, unit: float, width: int) -> None:
    along = end - start
    length = float(np.linalg.norm(along))
    if not length:
        return
    across = np.array([-along[1], along[0]]) / length
    gap = max(3.0, unit * 0.09)
    count = 2 if order == 4 else max(1, min(order, 3))
    for place in range(count):
        shift = across * gap * (place * 2 - count + 1) / (1 if count == 2 else 1.2)
        first, last = start + shift, end + shift
        dashed = order == 4 and place == 1
        steps = max(3, round(float(np.linalg.norm(last - first)) / 8)) | 1 if dashed else 1
        points = np.linspace(first, last, steps + 1)
        for step in range(0, steps, 2):
            draw.line([*points[step], *points[step + 1]], fill=INK, width=width)


def _label(
    draw: ImageDraw.ImageDraw, place: Array, label: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont
) -> None:
    """Write a label on a white background over the ends of lines."""
    x, y = float(place[0]), float(place[1])
    left, top, right, bottom = draw.textbbox((x, y), label, font=font, anchor="mm")
    draw.rectangle([left - 2, top - 2, right + 2, bottom + 2], fill=(255, 255, 255))
    draw.text((x, y), label, fill=COLOURS.get(label[0], (0, 0, 0)), font=font, anchor="mm")
