"""Fonts for drawing answers: one that has the characters of a text, Chinese ones among them, or word of which it lacks.

Where to look, in this order: the file that is asked for, the file in ``TECO_FONT``, the font that Pillow brings along
(Latin only), the fonts of this machine, and the package ``wqy_microhei`` of :mod:`utils.fetch`.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from PIL import ImageFont

from engine import ConfigError
from tecoinfer_modelzoo import home_folder
from tecoinfer_modelzoo.trees import walk

VARIABLE = "TECO_FONT"
"""Environment variable: a font file (TTF, OTF, TTC) for drawing."""

PACKAGE, MEMBER = "wqy_microhei", "usr/share/fonts/truetype/wqy/wqy-microhei.ttc"
"""The font that is downloaded where the machine has none with the characters."""

CHINESE = re.compile(
    r"(noto(sans|serif).*cjk|source-?han|sourcehan|wqy|wenquanyi|droidsansfallback|uming|ukai|pingfang|stheiti|songti"
    r"|hiragino sans gb|heiti|msyh|simsun|simhei|deng|arial ?unicode|unifont|notosans(sc|tc)).*\.(ttf|ttc|otf|otc)$",
    re.IGNORECASE,
)
"""Names of font files that usually have Chinese characters."""

OTHERS = re.compile(
    r"(dejavusans|liberationsans-regular|arial|notosans-regular|helvetica)\.(ttf|ttc|otf)$", re.IGNORECASE
)
"""Names of font files with more than Pillow's own has: accents, Greek, Cyrillic; tried first, as they are quick."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_NO_CHARACTER = "\U0010fffe"
"""Stands for no character in any font: it is drawn as what a font draws for those it lacks."""


class Chosen(NamedTuple):
    """A font for some text.

    Attributes:
        font: at the size that was asked for.
        path: its file; ``None`` for the one that Pillow brings along.
        missing: characters of the text that it cannot draw, each once, in order.
    """

    font: Font
    path: Path | None
    missing: str


def font_for(text: str, size: int, given: str | os.PathLike[str] | None = None) -> Chosen:
    """Return a font that can draw a text, or the one that lacks the fewest of its characters.

    A package is downloaded only where no font of this machine has them all; if that fails, one warning says how to get
    a font. Whoever draws must look at :attr:`Chosen.missing`, and not draw these characters.

    Args:
        text: all that is to be drawn. size: in pixels.
        given: a font file to use, whatever it lacks.

    Raises:
        ConfigError: ``given``, or what ``TECO_FONT`` names, is no font file.
    """
    asked = given or os.environ.get(VARIABLE)
    if asked:
        path = Path(asked)
        font = _opened(path, size)
        if font is None:
            source = "--font" if given else f"environment variable {VARIABLE}"
            raise ConfigError(f"{source}: {path} is no font file that can be read; give a .ttf, .otf or .ttc file")
        return Chosen(font, path, missing(font, text))
    own = _bundled(size)
    best = Chosen(own, None, missing(own, text))
    for path in machine_fonts() if best.missing else ():
        best = _better(best, path, text, size)
        if not best.missing:
            break
    if best.missing and (fetched := _downloaded()) is not None:
        best = _better(best, fetched, text, size)
    return best


def missing(font: Font, text: str) -> str:
    """Return the characters of a text, each once, that a font draws as a box or not at all; white space is none."""
    wanted = dict.fromkeys(character for character in text if not character.isspace())
    box = _picture(font, _NO_CHARACTER)
    return "".join(one for one in wanted if (drawn := _picture(font, one)) == box or not any(drawn[1]))


def machine_fonts() -> tuple[Path, ...]:
    """Return font files of this machine that are worth trying, by their names: those with Chinese characters last."""
    return _listed(tuple(_folders()))


@lru_cache
def _listed(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    found = [
        Path(place, name)
        for folder in folders
        for place, _, names in walk(folder)
        for name in sorted(names)
        if CHINESE.match(name) or OTHERS.match(name)
    ]
    return tuple(
        sorted(found, key=lambda path: (CHINESE.match(path.name) is not None, "bold" in path.name.lower(), path))
    )


def _folders() -> Iterator[Path]:
    """Yield where this system keeps fonts, as fontconfig and the systems themselves document."""
    home = home_folder()
    if sys.platform == "win32":
        for variable, below in (("WINDIR", "Fonts"), ("LOCALAPPDATA", "Microsoft/Windows/Fonts")):
            if variable in os.environ:
                yield Path(os.environ[variable], below)
    elif sys.platform == "darwin":
        yield from (Path("/System/Library/Fonts"), Path("/Library/Fonts"))
        if home is not None:
            yield home / "Library/Fonts"
    else:
        yield from (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
        if data := os.environ.get("XDG_DATA_HOME") or (home and home / ".local/share"):
            yield Path(data, "fonts")
        if home is not None:
            yield home / ".fonts"


def _better(best: Chosen, path: Path, text: str, size: int) -> Chosen:
    font = _opened(path, size)
    if font is None:
        return best
    found = Chosen(font, path, missing(font, text))
    return found if len(found.missing) < len(best.missing) else best


@lru_cache
def _downloaded() -> Path | None:
    """Return the package's font; ``None``, and a warning once, where it cannot be had."""
    from utils.fetch import FetchError, fetched

    try:
        return fetched(PACKAGE) / MEMBER
    except FetchError as error:
        warnings.warn(
            f"no font here has all characters of the answers, and {PACKAGE} cannot be downloaded ({error}); install a "
            f"font with them (fonts-noto-cjk, fonts-wqy-microhei), or name a font file with --font or {VARIABLE}",
            stacklevel=3,
        )
        return None


@lru_cache(maxsize=16)
def _opened(path: Path, size: int) -> Font | None:
    try:
        return ImageFont.truetype(path, size)
    except (OSError, ImportError):  # no such file, no font, or a Pillow without FreeType
        return None


@lru_cache(maxsize=16)
def _bundled(size: int) -> Font:
    return ImageFont.load_default(size=size)


def _picture(font: Font, character: str) -> tuple[tuple[int, int], bytes]:
    """Return what a font draws for one character; a font of bitmaps draws nothing for what it cannot encode."""
    try:
        mask = font.getmask(character)
    except (UnicodeEncodeError, OSError, ValueError):
        return (0, 0), b""
    return (mask.size[0], mask.size[1]), bytes(mask)
