"""The text that the model learns: the prose of Django's manual (BSD-3-Clause), page by page."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from utils.fetch import fetched

PACKAGE = "django_docs"

KEPT = ("faq", "howto", "internals", "intro", "misc", "ref", "releases", "topics")
"""Folders of the manual that are read."""

SHORTEST = 400
"""Characters of prose that a page has at least."""

_ROLE = re.compile(r":[\w:+-]+:`([^`]*)`")
_NAMED = re.compile(r"^!?~?(.*?)(?:\s*<[^<>]*>)?$", re.DOTALL)
_LINK = re.compile(r"`([^`<]+?)\s*<[^`>]*>`__?")
_REFERENCE = re.compile(r"`([^`]+)`__?|\|([^|\s]+)\|")


def pages() -> dict[str, str]:
    """Return the prose of every page by its name, such as ``topics/cache.txt``, sorted by name."""
    root = next(Path(fetched(PACKAGE)).glob("*/docs"))
    found = {str(path.relative_to(root)): path for folder in KEPT for path in (root / folder).rglob("*.txt")}
    read = {name: prose(found[name].read_text(encoding="utf-8")) for name in sorted(found)}
    return {name: text for name, text in read.items() if len(text) >= SHORTEST}


def is_held_out(name: str) -> bool:
    """Say whether a page is kept from training: one in eight, by a hash of its name; none of the release notes.

    Release notes repeat one another, so a model that has seen one knows much of the next.
    """
    return not name.startswith("releases/") and hashlib.sha256(name.encode()).digest()[0] % 8 == 0


def prose(text: str) -> str:
    """Return the paragraphs of a page of reStructuredText: no code, lists, tables, directives or titles.

    What is marked up keeps its words: ``:ref:`caching <x>``` becomes ``caching``.
    """
    blocks = (block for block in re.split(r"\n\s*\n", text))
    kept = (_plain(block) for block in blocks if _is_prose(block))
    return "\n".join(one for one in kept if len(one) > 40)


def _is_prose(block: str) -> bool:
    lines = block.strip("\n").split("\n")
    if any(line.startswith((" ", "\t")) for line in lines):
        return False
    first = lines[0]
    return bool(first) and first[0].isupper() and not any(set(line) <= set("=-~^*+#`") for line in lines)


def _plain(block: str) -> str:
    found = _ROLE.sub(lambda match: _NAMED.sub(r"\1", match.group(1)), block)
    found = _LINK.sub(r"\1", found).replace("``", "")
    found = _REFERENCE.sub(lambda match: match.group(1) or match.group(2), found)
    found = re.sub(r"\*\*?([^*\s][^*]*)\*\*?", r"\1", found)
    found = re.sub(r"::$", ":", found)
    return re.sub(r"\s+", " ", found).strip()
