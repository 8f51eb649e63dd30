"""Select a font with the characters of a text, such as Chinese ones, and list the missing ones.

Searched in this order: the given file, the file in ``TECO_FONT``, Pillow's font (Latin only), the fonts of this
machine, and the package ``wqy_microhei`` of :mod:`utils.fetch`.
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
"""The font that is downloaded if no font of the machine has the characters."""

CHINESE = re.compile(
    r"(noto(sans|serif).*cjk|source-?han|sourcehan|wqy|wenquanyi|droidsansfallback|uming|ukai|pingfang|stheiti|songti"
    r"|hiragino sans gb|heiti|msyh|simsun|simhei|deng|arial ?unicode|unifont|notosans(sc|tc)).*\.(ttf|ttc|otf|otc)$",
    re.IGNORECASE,
)
"""Names of font files that usually have Chinese characters."""

OTHERS = re.compile(
    r"(dejavusans|liberationsans-regular|arial|notosans-regular|helvetica)\.(ttf|ttc|otf)$", re.IGNORECASE
)
"""Names of font files with accents, Greek and Cyrillic, which Pillow's lacks; tried first, as they load quickly."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_NO_CHARACTER = "\U0010fffe"
"""A code point without a character; a font draws it like a missing character."""


class Chosen(NamedTuple):
    """A font for some text.

    Attributes:
        font: of the requested size.
        path: its file; ``None`` for Pillow's font.
        missing: characters of the text that the font lacks, each once, in order.
    """

    font: Font
    path: Path | None
    missing: str


def font_for(text: str, size: int, given: str | os.PathLike[str] | None = None) -> Chosen:
    """Return a font with all characters of a text, or the font that lacks the fewest.

    A package is downloaded only if no font of this machine has all characters; if that fails, a warning says how to
    install a font. The caller must not draw :attr:`Chosen.missing`.

    Args:
        text: to draw. size: in pixels.
        given: a font file to use in any case.

    Raises:
        ConfigError: ``given``, or the file in ``TECO_FONT``, is not a font file.
    """
    asked = given or os.environ.get(VARIABLE)
    if asked:
        path = Path(asked)
        font = _opened(path, size)
        if font is None:
            source = "--font" if given else f"environment variable {VARIABLE}"
            raise ConfigError(f"{source}: {path} is not a readable font file; give a .ttf, .otf or .ttc file")
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
    """Return the characters of a text, each once, that a font lacks; white space is ignored."""
    wanted = dict.fromkeys(character for character in text if not character.isspace())
    box = _image(font, _NO_CHARACTER)
    return "".join(one for one in wanted if (drawn := _image(font, one)) == box or not any(drawn[1]))


def machine_fonts() -> tuple[Path, ...]:
    """Return the relevant font files of this machine, selected by name, those with Chinese characters last."""
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
    """Yield the font folders of this system, as documented by fontconfig and the operating systems."""
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
    """Return the package's font; ``None``, with a warning, if it cannot be downloaded."""
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
    except (OSError, ImportError):  # a missing file, not a font, or a Pillow without FreeType
        return None


@lru_cache(maxsize=16)
def _bundled(size: int) -> Font:
    return ImageFont.load_default(size=size)


def _image(font: Font, character: str) -> tuple[tuple[int, int], bytes]:
    """Return size and pixels of a character; empty if a bitmap font cannot encode it."""
    try:
        mask = font.getmask(character)
    except (UnicodeEncodeError, OSError, ValueError):
        return (0, 0), b""
    return (mask.size[0], mask.size[1]), bytes(mask)
