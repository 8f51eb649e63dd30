"""Tables for people: no cell begins a line that could pass for another one."""

from __future__ import annotations

from tecoinfer_modelzoo.formatting import aligned


def test_cells_have_their_line_breaks_written_out() -> None:
    lines = aligned([("name", "size"), ("line\neval_metric 9.9", "1"), ("esc\x1b[31m", "2")])
    assert lines == ["name                   size", "line\\neval_metric 9.9  1", "esc\\x1b[31m            2"]
