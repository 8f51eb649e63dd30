"""Alignment of table rows, with line breaks escaped."""

from __future__ import annotations

from tecoinfer_modelzoo.formatting import aligned


def test_line_breaks_in_cells_are_escaped() -> None:
    lines = aligned([("name", "size"), ("line\neval_metric 9.9", "1"), ("esc\x1b[31m", "2")])
    assert lines == ["name                   size", "line\\neval_metric 9.9  1", "esc\\x1b[31m            2"]
