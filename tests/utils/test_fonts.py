"""Fonts for drawing: the characters they lack are known, and nothing is taken for a font that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from engine import ConfigError
from utils import fonts
from utils.fetch import UnreachableError, fetched
from utils.fonts import MEMBER, PACKAGE, font_for, missing


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without fonts, where nothing can be downloaded."""
    monkeypatch.delenv(fonts.VARIABLE, raising=False)
    monkeypatch.setattr(fonts, "_folders", lambda: iter(()))
    fonts._downloaded.cache_clear()

    def fail(name: str) -> Path:
        raise UnreachableError(f"{name} cannot be downloaded; check the network")

    monkeypatch.setattr("utils.fetch.fetched", fail)
    yield
    fonts._downloaded.cache_clear()


def test_plain_text_needs_no_font_of_the_machine(bare: None) -> None:
    chosen = font_for("markers = 3.5 >>> (x)", 20)
    assert chosen.path is None
    assert chosen.missing == ""


def test_missing_characters_are_reported_once(bare: None) -> None:
    with pytest.warns(UserWarning, match=r"fonts-wqy-microhei.*--font or TECO_FONT"):
        chosen = font_for("a 太初 太", 20)
    assert chosen.missing == "太初"
    assert font_for("太", 20).missing == "太"  # without a second warning, which would be an error here


def test_the_package_has_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fonts.VARIABLE, raising=False)
    monkeypatch.setattr(fonts, "_folders", lambda: iter(()))
    try:
        path = fetched(PACKAGE) / MEMBER
    except UnreachableError as error:
        pytest.skip(f"the font cannot be fetched: {error}")
    chosen = font_for("太初加速卡 é Ω", 24)
    assert chosen == (chosen.font, path, "")
    canvas = Image.new("L", (40, 40))
    ImageDraw.Draw(canvas).text((4, 4), "初", fill=255, font=chosen.font)
    assert canvas.getbbox() is not None


def test_a_given_font_is_always_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    path = Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf")
    chosen = font_for("Ω太", 20, path)
    assert chosen.path == path
    assert chosen.missing == "太" == missing(chosen.font, "Ω 太太")
    monkeypatch.setenv(fonts.VARIABLE, str(path))
    assert font_for("a", 20).path == path


@pytest.mark.parametrize("content", [None, b"", b"no font"])
def test_invalid_font_files_give_one_line(
    tmp_path: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ttf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"--font: .*a\.ttf is not a"):
        font_for("a", 20, path)
    monkeypatch.setenv(fonts.VARIABLE, str(path))
    with pytest.raises(ConfigError, match=r"environment variable TECO_FONT: .*a\.ttf"):
        font_for("a", 20)
