"""Drawing of a recommendation: the history on the left, recommended items on the right, with bars for scores."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw

from utils.fonts import font_for

SIZE, ROW, MARGIN = 18, 30, 20
"""Size of letters, height of a row, and margin, in pixels."""

COLUMN, BAR = 420, 150
"""Width of a column of titles, and of the longest bar, in pixels."""

_PAPER, _INK, _FAINT, _COLOUR = (255, 255, 255), (25, 25, 25), (130, 130, 130), (60, 120, 190)


def draw_recommended(who: str, before: Sequence[str], titles: Sequence[str], scores: Sequence[float]) -> Image.Image:
    """Return an RGB image of a recommendation to the user ``who``.

    ``before`` are the titles of the history's last items, the latest one at the end. Recommended titles are best first.
    A bar's length shows its score above the lowest one shown, from a fifth of the longest bar.
    """
    rows = max(len(before), len(titles), 1)
    canvas = Image.new("RGB", (2 * COLUMN + BAR + 4 * MARGIN, (rows + 1) * ROW + 2 * MARGIN), _PAPER)
    pen, heads = ImageDraw.Draw(canvas), (f"{who}: before", "recommended next")
    font = font_for("".join([*heads, *before, *titles]), SIZE).font
    left, right = MARGIN, COLUMN + 2 * MARGIN
    for start, head in zip((left, right), heads, strict=True):
        pen.text((start, MARGIN), head, fill=_FAINT, font=font)
    for row, title in enumerate(before, start=1):
        pen.text((left, MARGIN + row * ROW), _fitted(title, font), fill=_INK, font=font)
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    for row, (title, score) in enumerate(zip(titles, scores, strict=True), start=1):
        top = MARGIN + row * ROW
        pen.text((right, top), _fitted(f"{row}. {title}", font), fill=_INK, font=font)
        share = 0.2 + 0.8 * ((score - least) / (most - least) if most > least else 1.0)
        start = right + COLUMN + MARGIN
        pen.rectangle((start, top + 3, start + round(share * (BAR - MARGIN)), top + SIZE + 1), fill=_COLOUR)
    pen.line((COLUMN + 1.5 * MARGIN, MARGIN, COLUMN + 1.5 * MARGIN, canvas.height - MARGIN), fill=_FAINT)
    return canvas


def _fitted(text: str, font: object) -> str:
    """Return a text shortened to the width of a column."""
    length = getattr(font, "getlength")  # noqa: B009 - both font classes of Pillow have it
    if length(text) <= COLUMN:
        return text
    while text and length(f"{text}...") > COLUMN:
        text = text[:-1]
    return f"{text.rstrip()}..."
