"""HTML pages that need nothing else: one style, one script, and no request."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tecoinfer_modelzoo import formatting as text
from tecoinfer_modelzoo.extra import extra

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).resolve().parent / "templates"
"""What all pages build on: their frame, the parts they share, the style and the script."""


@dataclass(frozen=True)
class Pages:
    """A folder of templates, each of which becomes a page that makes no request.

    A content security policy keeps it so: a page runs no script but its own, whatever it tells of.

    Attributes:
        folder: where templates are looked for before :data:`TEMPLATES`, which they may build on.
        filters, functions: what they need beside the common ones, by the names they use.
    """

    folder: Path
    filters: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)

    def render(self, template: str, **values: Any) -> str:
        """Return a template, filled in; all values are cleaned and escaped.

        Args:
            template: name of its file.
            values: what it is filled in with.

        Raises:
            ConfigError: jinja2 is not installed.
        """
        style, script = (_asset(name) for name in ("style.css", "page.js"))
        found = self._environment.get_template(template)
        return found.render(style=style, script=script, policy=_policy(), **values)

    @cached_property
    def _environment(self) -> Environment:
        with extra("the HTML report"):
            from jinja2 import Environment, FileSystemLoader, StrictUndefined
        made = Environment(
            autoescape=True,
            finalize=_finalize,
            loader=FileSystemLoader([self.folder, TEMPLATES]),
            lstrip_blocks=True,
            trim_blocks=True,
            undefined=StrictUndefined,
        )
        made.filters.update(_FILTERS, **self.filters)
        made.globals.update(_FUNCTIONS, **self.functions)
        return made


def _finalize(value: Any) -> Any:
    """Clean every plain text that goes into a page; what templates have marked as safe is theirs."""
    return text.clean(value) if type(value) is str else value


def _asset(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _policy() -> str:
    """Return the content security policy: no network, and no script or style but the two of the page."""

    def digest(name: str) -> str:
        return base64.b64encode(hashlib.sha256(_asset(name).encode()).digest()).decode()

    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest('style.css')}'; "
        f"script-src 'sha256-{digest('page.js')}'; base-uri 'none'; form-action 'none'"
    )


def _anchor(name: str) -> str:
    """Return a text that can be an ``id``: other characters become hexadecimal, so two names never meet."""
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name)


def _breakable(value: str, longest: int = 24) -> Markup:
    """Return a text whose words beyond ``longest`` may go on in a new line after ``_ . / : -``, not just anywhere."""
    from markupsafe import Markup, escape

    words = re.split(r"(\s+)", text.clean(value))
    pieces = ([word] if len(word) <= longest else re.split(r"(?<=[_./:-])(?=\w)", word) for word in words)
    return Markup("").join(Markup("<wbr>").join(map(escape, parts)) for parts in pieces)


def _choices(values: Iterator[str]) -> list[str]:
    return sorted({value for value in values if value})


_FILTERS: Mapping[str, Any] = {
    "anchor": _anchor,
    "breakable": _breakable,
    "choices": _choices,
    "facts": text.facts,
    "memory": text.memory,
    "number": text.number,
    "percent": text.percent,
    "seconds": text.seconds,
    "share": text.share,
}
_FUNCTIONS: Mapping[str, Any] = {"plural": text.plural}
