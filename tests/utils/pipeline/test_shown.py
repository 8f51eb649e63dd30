"""What both streams write of names and texts that their encoding cannot hold."""

from __future__ import annotations

import io
import sys

import pytest

from utils.pipeline.shown import only_shown


@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "surrogatepass"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_text_that_the_encoding_cannot_hold_is_written_out(
    encoding: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    for name in ("stdout", "stderr"):
        stream = io.TextIOWrapper(written, encoding, errors, newline="", write_through=True)
        monkeypatch.setattr(sys, name, stream)
        with only_shown():
            print("half \ud800, byte \udcff, \u4e2d", file=getattr(sys, name))
        stream.detach()
    wide = "\\u4e2d" if encoding == "ascii" else "\u4e2d"
    assert written.getvalue().decode(encoding) == f"half \\ud800, byte \\udcff, {wide}\n" * 2


def test_another_way_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii", "replace", newline="", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    with only_shown():
        print("\u4e2d")  # noqa: T201
    stream.detach()
    assert written.getvalue() == b"?\n"
