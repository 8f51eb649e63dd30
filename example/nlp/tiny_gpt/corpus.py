"""The training text: the prose of the documentation of the running Python (PSF licence).

It is the language reference in ``pydoc_data/topics.py`` and the documentation strings of a fixed list of modules of the
standard library. The files are parsed, not imported or executed. The committed files were made with Python
3.11.7; another version has other text.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import re
import sysconfig
import textwrap
from pathlib import Path

VERSION = "3.11.7"
"""Version of Python whose text the committed files contain."""

_NAMES = """
__future__ _aix_support _collections_abc _markupbase _osx_support _py_abc _pydecimal _pyio _sitebuiltins _strptime
_threading_local abc aifc argparse ast asyncio base64 bdb bisect bz2 calendar cgi cgitb chunk cmd code codeop
collections colorsys compileall concurrent configparser contextlib copy copyreg crypt csv ctypes curses dataclasses
datetime dbm difflib dis distutils doctest email enum filecmp fileinput fnmatch fractions ftplib functools genericpath
getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http imaplib imghdr imp importlib inspect io
ipaddress json keyword linecache locale lzma mailbox mailcap mimetypes modulefinder multiprocessing netrc nntplib
ntpath nturl2path numbers opcode operator os pathlib pdb pickle pickletools pipes pkgutil plistlib poplib posixpath
pprint pty py_compile pyclbr pydoc queue quopri random reprlib rlcompleter runpy sched secrets selectors shelve shlex
shutil signal site smtpd smtplib sndhdr socket socketserver ssl stat statistics string stringprep subprocess sunau
symtable sysconfig tabnanny telnetlib tempfile textwrap threading timeit tkinter tokenize tomllib traceback
tracemalloc types typing unittest urllib uuid venv warnings wave weakref webbrowser wsgiref xdrlib xml zipapp zipfile
zipimport zoneinfo
"""

MODULES = tuple(_NAMES.split())
"""Modules and packages whose documentation strings are read."""

LEFT_OUT = ("http.cookies", "tkinter.simpledialog", "urllib.robotparser", "xml.etree", "distutils.tests")
"""Parts that are skipped: their licence terms differ from Python's, or they are tests."""

SHORTEST = 300
"""Fewest characters of prose in a page."""

RUN = 12
"""Length in words of a run that a training page must not share with a held-out page."""

_WORD = re.compile(r"\w+")
_NO_PROSE = re.compile(r">>>|::=|[{}|\\]|==|\w\(.*\w=|^\w+ = |https?://|@\w+\.|(?i:copyright)|\.\.\.\s|^\.\. ")
_LETTERS = re.compile(r"[A-Za-z ]")


def pages() -> dict[str, str]:
    """Return the prose of every topic and module by its name, such as ``topic yield`` or ``module email.header``.

    A paragraph that occurs in several pages is kept in one of them, a held-out page if there is one. A training
    paragraph that shares a run of ``RUN`` words with a held-out page is left out.
    """
    found = _sources()
    seen: set[str] = set()
    runs: set[tuple[str, ...]] = set()
    kept: dict[str, str] = {}
    for name in sorted(found, key=lambda one: (not is_held_out(one), one)):
        own = []
        for one in found[name]:
            if one in seen or (not is_held_out(name) and not runs.isdisjoint(_runs(one))):
                continue
            seen.add(one)
            own.append(one)
        text = "\n".join(own)
        if len(text) >= SHORTEST:
            kept[name] = text
            runs.update(_runs(text) if is_held_out(name) else ())
    return {name: kept[name] for name in sorted(kept)}


def is_held_out(name: str) -> bool:
    """Return whether a page is held out: one in eight, by a hash of its name."""
    return hashlib.sha256(name.encode()).digest()[0] % 8 == 0


def made_by() -> str:
    """Return the version of Python of the text, and whether it is the version of the committed files."""
    now = platform.python_version()
    return f"text of Python {now}" + ("" if now == VERSION else f", not {VERSION}, of which the committed files are")


def _sources() -> dict[str, list[str]]:
    """Return the paragraphs of every page by its name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    tree = ast.parse((root / "pydoc_data" / "topics.py").read_text(encoding="utf-8"))
    topics = next(ast.literal_eval(one.value) for one in tree.body if isinstance(one, ast.Assign))
    found = {f"topic {name}": prose(text) for name, text in topics.items()}
    for top in MODULES:
        for path in [root / f"{top}.py", *sorted((root / top).rglob("*.py"))]:
            name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            if path.is_file() and not any(f"{name}.".startswith(f"{one}.") for one in LEFT_OUT):
                found[f"module {name}"] = [part for text in documentation(path) for part in prose(text)]
    return found


def documentation(path: Path) -> list[str]:
    """Return the documentation strings of a module, its classes and functions, in the order of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    every = [one for one in ast.walk(tree) if isinstance(one, kinds)]
    every.sort(key=lambda one: getattr(one, "lineno", 0))
    return [text for one in every if (text := ast.get_docstring(one))]


def prose(text: str) -> list[str]:
    """Return the paragraphs of a text, one per line, without code, lists, tables, grammar, titles and markup."""
    blocks = (textwrap.dedent(one.strip("\n")) for one in re.split(r"\n\s*\n", text))
    return [_plain(one) for one in blocks if _is_prose(one)]


def _is_prose(block: str) -> bool:
    if not block or not block[0].isupper() or block.rstrip()[-1] not in ".:?!)" or _NO_PROSE.search(block):
        return False
    lines = block.split("\n")
    if any(line.startswith((" ", "\t")) or len(set(line)) < 3 for line in lines):
        return False
    letters = len(_LETTERS.findall(" ".join(lines)))
    return len(block.split()) >= 7 and letters >= 0.9 * len(block)


def _plain(block: str) -> str:
    found = re.sub(r":\w+:`([^`]*)`", r"\1", block).replace("`", "")
    found = re.sub(r"\*\*?([^*\s][^*]*)\*\*?", r"\1", found)
    found = re.sub(r"\s*\[\d+\]_?", "", found)
    return re.sub(r"\s+", " ", found).removesuffix("::").strip()


def _runs(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return {tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}
