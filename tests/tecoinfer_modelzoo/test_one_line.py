from __future__ import annotations

import pytest

from tecoinfer_modelzoo.text import did_you_mean, nearest, one_line, reason_of, shape_text, typed_reason


def test_an_error_in_one_line() -> None:
    error = ValueError("bad\n  header\tat 3")
    assert one_line(error) == reason_of(error) == "bad header at 3"
    assert typed_reason(error) == "ValueError: bad header at 3"
    assert typed_reason(error, 3) == "ValueError: bad"


def test_an_error_without_a_message_shows_its_type() -> None:
    assert one_line(EOFError()) == ""
    assert reason_of(EOFError()) == typed_reason(EOFError()) == "EOFError"


def test_suggestions() -> None:
    assert nearest("digitz", ["resnet", "digits"]) == "digits"
    assert nearest("digitz", ["resnet"]) is None
    assert nearest("sd", ["sdaa"], cutoff=0.9) is None
    assert did_you_mean("digitz", {"resnet", "digits"}) == " did you mean 'digits'?"
    assert did_you_mean("digitz", ()) == ""


@pytest.mark.parametrize(
    ("sizes", "text"), [((), "scalar"), ((1, 3), "1x3"), ((None, 3, 0), "Nx3x0"), (("b", 2), "bx2")]
)
def test_shapes(sizes: tuple[int | str | None, ...], text: str) -> None:
    assert shape_text(sizes) == text
