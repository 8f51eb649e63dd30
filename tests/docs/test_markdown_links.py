"""Every link of every Markdown file leads to a file and a heading that exist; so does every page that code mentions."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from support import ROOT

FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)[^`].*?\1")
LINK = re.compile(r"\]\(<?([^()\s<>]*)>?(?: +\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"")
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""The scheme of a link to another site, which needs a network to be checked."""
MENTION = re.compile(r"(?<![\w/.-])(?:\.\./)*(docs/[\w/.-]+\.md)\b")
"""A page named from the repository's root, or from a folder in it."""


@cache
def _text(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the fragments that lead to the headings of a page, as GitHub forms them."""
    found, seen = set(), Counter[str]()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _text(page), re.MULTILINE):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w -]", "", shown).strip().lower().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", _text(page))))


def broken(page: Path) -> Iterator[str]:
    """Yield the links of a page whose file or heading does not exist."""
    for link in (first or second for first, second in LINK.findall(CODE.sub("", _text(page)))):
        if OUTSIDE.match(link):
            continue
        name, _, fragment = unquote(link).partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            yield f"{link} does not exist"
        elif fragment and target.suffix == ".md" and fragment not in anchors(target):
            yield f"{link} has no such heading"


def committed(*patterns: str) -> list[Path]:
    """Return the files of the repository that match, new ones too; skip the test outside a repository."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git ls-files failed: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_link_of_every_page_has_a_target() -> None:
    pages = committed("*.md")
    assert len(pages) > 100
    assert [f"{page.relative_to(ROOT)}: {why}" for page in pages for why in broken(page)] == []


def test_every_page_that_code_and_templates_mention_exists() -> None:
    """Messages, docstrings and generated READMEs; tests name pages that they write themselves."""
    files = [path for path in committed("*.py", "*.yaml", "*.tmpl", "*.md") if not path.is_relative_to(ROOT / "tests")]
    named = {(path, page) for path in files for page in MENTION.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 100
    assert sorted(f"{path.relative_to(ROOT)}: {page}" for path, page in named if not (ROOT / page).is_file()) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# One\n\n## A `b` (c)\n\n## Two\n\n## Two\n\n```sh\n# no heading\n```\n")
    good = "[a](other.md) [b](other.md#a-b-c) [c](other.md#two-1) [d](#here) [e](https://x.org/y) `[f](gone.md)`"
    wrong = '[a](gone.md) ![b](gone.png) [c](other.md#three) [d](#no) [e](other.md#no-heading) <img src="gone.gif">'
    page.write_text(f"# Here\n\n{good}\n\n```md\n[x](gone.md)\n```\n\n{wrong}\n")
    assert [why.split()[0] for why in broken(page)] == [
        *("gone.md", "gone.png", "other.md#three", "#no", "other.md#no-heading", "gone.gif")
    ]
