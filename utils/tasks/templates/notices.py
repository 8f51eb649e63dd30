"""Sample pages of page reading: short notices that are drawn in the font that Pillow brings along."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from utils.tasks.base import Template

NOTICES = (
    ("Opening hours", "Monday to Friday 9 - 17", "Saturday 10 - 14"),
    ("Room 204", "Meeting at 14:30", "Please knock"),
    ("Order 48213", "3 boxes of tea", "Total 27.50 EUR"),
    (),
)
"""Lines of each page; the last one is empty."""


def fill(folder: Path) -> Mapping[str, str]:
    """Draw pages into ``data`` with their ``Label.txt``; return words for the templates."""
    from PIL import Image, ImageFont

    from utils.datasets.text_pages import Paper, column

    data = folder / "data"
    data.mkdir(parents=True)
    rows = []
    for number, texts in enumerate(NOTICES):
        paper = Paper((480, 320), seed=number)
        column(paper, texts, ImageFont.load_default(size=30), (40, 50), 80)
        page = paper.page(grain=2.0)
        name = f"notice_{number}.jpg"
        Image.fromarray(page.pixels).save(data / name, quality=85)
        lines = [{"transcription": one.text, "points": one.outline.round(1).tolist()} for one in page.lines]
        rows.append(f"{name}\t{json.dumps(lines)}\n")
    (data / "Label.txt").write_text("".join(rows), encoding="utf-8")
    return {"pages": str(len(NOTICES))}


TEMPLATE = Template(Path(__file__).with_name("page_reading"), fill)
"""Three models of the user's own; until they are there, PP-OCRv4 out of a package."""
