"""The source of the documentation site: the pages of ``docs/``, and every file that they link to. A hook of mkdocs.

mkdocs reads one folder, but pages link to READMEs and sources of the whole repository. So the build reads a copy, made
by :func:`stage`: READMEs become pages, other files text files, folders without a README a list of their files, and the
links are changed accordingly; a link that shows the name of a page shows its title instead. The marks of files in the
pages (``<!-- file: NAME -->``) become titles of code blocks. The site has a switch of languages, so Chinese pages
(``NAME.zh-CN.md``) get the name that the plugin i18n looks for, ``NAME.zh.md``, and links between the two languages are
left out.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

PAGES = {"README.md": "index.md", "README.zh-CN.md": "index.zh.md"}
"""Pages outside ``docs/`` with a place of their own; others are below ``files/``."""

IMAGES = (".gif", ".jpg", ".png", ".svg")
"""Endings of files that are copied under their names; a browser shows other files only as ``.txt``."""

_LINK = re.compile(r"(\]\(|\b(?:src|href)=\")([^()\s#\"]+)(#[^()\s\"]*)?([)\"])")
_NAMED = re.compile(r"\[[\w./-]+\.md\]\(([^()\s#]+\.md)(#[^()\s]*)?\)")
_SWITCH = re.compile(r"^\[(?:中文|English)\]\([^)]+\)(?: · |\n)", re.MULTILINE)
_FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?)$", re.MULTILINE)
_MARK = re.compile(r"^<!-- (file|append|section): (.+?) -->\n(`{3,})(\w*)$", re.MULTILINE)
_NESTED = re.compile(r"^( {2,})(?=\S)", re.MULTILINE)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_IMAGE = re.compile(r'<img src="([^"]+)" width="([^"]+)" alt="([^"]+)">')


def place(root: Path, name: str) -> str:
    """Return the path in the copy of a file or folder of the repository, both relative and with slashes."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/").replace(".zh-CN.md", ".zh.md")
    if (root / name).is_dir():
        return f"files/{name}/README.md"
    if name in PAGES or name.endswith((".md", *IMAGES)):
        return PAGES.get(name, f"files/{name}")
    path = PurePosixPath("files", name)
    return path.with_name(f"{path.name.replace('.', '_')}.txt").as_posix()  # i18n would read .py as a language


def stage(root: Path, out: Path) -> list[str]:
    """Write the source of the site into an empty folder; return the names in ``root`` of the files and folders in it.

    Raises:
        OSError: a file cannot be read or written.
    """
    docs = sorted(path for path in (root / "docs").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    waiting = [name for name in PAGES if (root / name).is_file()]
    waiting += [path.relative_to(root).as_posix() for path in docs]
    known = set(waiting)
    for name in waiting:  # grows by what the pages link to
        source, target = root / name, out / place(root, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir() or name.endswith(".md"):
            text, linked = _page(root, name)
            target.write_text(text, encoding="utf-8")
            waiting += [one for one in linked if not (one in known or known.add(one))]  # type: ignore[func-returns-value]
        else:
            shutil.copyfile(source, target)
    return waiting


def _page(root: Path, name: str) -> tuple[str, list[str]]:
    """Return the text of a page with its links changed, and the names of the files and folders that it links to."""
    linked = list[str]()
    if (root / name).is_dir():
        files = [path.name for path in sorted((root / name).iterdir()) if path.is_file()]
        text = f"# {name}\n\n" + "".join(f"- [{one}]({one})\n" for one in files)
        return _changed(root, f"{name}/README.md", text, linked), linked
    text = _SWITCH.sub("", (root / name).read_text(encoding="utf-8"))
    text = _IMAGE.sub(r'![\3](\1){ width="\2" }', text)  # mkdocs changes paths of images in Markdown only
    english = root / name.replace(".zh-CN.md", ".md")
    if name.endswith(".zh-CN.md") and english.is_file():
        text = _anchored(text, english.read_text(encoding="utf-8"))
    return _titled(_outside(text, lambda part: _changed(root, name, _piped(_deeper(part)), linked))), linked


def _changed(root: Path, page: str, text: str, linked: list[str]) -> str:
    """Return a text of a page whose links are those of the copy; note their targets, READMEs instead of folders."""
    folder, here = PurePosixPath(page).parent, PurePosixPath(place(root, page)).parent

    def link(match: re.Match[str]) -> str:
        name = os.path.normpath(folder / match[2])
        if re.match(r"[a-z]+:", match[2]) or name.startswith("..") or not (root / name).exists():
            return match[0]  # to another site; a wrong one is reported by mkdocs
        if (root / name / "README.md").is_file():
            name += "/README.md"
        linked.append(name)
        target = place(root, name).replace(".zh.md", ".md")  # the plugin finds the page in the reader's language
        fragment = "" if target.endswith(".txt") else match[3] or ""
        return f"{match[1]}{os.path.relpath(target, here)}{fragment}{match[4]}"

    def titled(match: re.Match[str]) -> str:
        target = root / folder / match[1]
        title = re.search(r"^# (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE) if target.is_file() else None
        return f"[{title[1]}]({match[1]}{match[2] or ''})" if title else match[0]

    return _LINK.sub(link, _NAMED.sub(titled, text))


def _anchored(text: str, english: str) -> str:
    """Return a translated page whose headings also have the anchors of the English ones, to which other pages link."""
    slugs = [re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in _HEADING.findall(_prose(english))]
    missing = iter([f'<a id="{slug}"></a>' if f'id="{slug}"' not in text else "" for slug in slugs])
    return _outside(
        text, lambda part: re.sub(r"^(#{1,6} +)", lambda m: m[1] + next(missing, ""), part, flags=re.MULTILINE)
    )


def _prose(text: str) -> str:
    """Return a text without its code blocks."""
    return _FENCE.sub("", text)


def _outside(text: str, change: Callable[[str], str]) -> str:
    """Return a text whose parts outside of code blocks are changed."""
    parts, last = list[str](), 0
    for block in _FENCE.finditer(text):
        parts += [change(text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, change(text[last:])])


def _deeper(text: str) -> str:
    """Return a text whose nested lists have four spaces a level, which Python-Markdown needs, instead of two."""
    return _NESTED.sub(lambda match: " " * (2 * len(match[1])), text)


def _piped(text: str) -> str:
    """Return a text without the backslashes before ``|`` in code in tables, which Python-Markdown would show."""
    return _ROW.sub(lambda row: re.sub(r"`[^`]+`", lambda code: code[0].replace(r"\|", "|"), row[0]), text)


def _titled(text: str) -> str:
    """Return a text whose marks of files are titles of the code blocks below them."""
    words = {"file": "", "append": "append to ", "section": "section of "}
    return _MARK.sub(lambda m: f'{m[3]}{m[4] or "text"} title="{words[m[1]]}{m[2].replace(chr(34), "")}"', text)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> None:
    """Give the whole width to a page without sections, such as one long table, instead of an empty list of them."""
    if not re.search(r"^## ", _prose(markdown), re.MULTILINE):
        page.meta.setdefault("hide", ["toc"])


def on_config(config: Any) -> Any:
    """Let mkdocs read the copy."""
    out = Path(tempfile.mkdtemp(prefix="site_source_"))
    stage(ROOT, out)
    config.docs_dir = str(out)
    return config


def on_post_build(config: Any) -> None:
    """Remove the copy."""
    shutil.rmtree(config.docs_dir, ignore_errors=True)
