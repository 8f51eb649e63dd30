"""Files that the rules check, each read once: text, lines and syntax tree, or the reason why it cannot be read."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from model_config.cases.config import Case, Command
from model_config.run.foreign import Foreign
from model_config.structure.contributed import Tasks
from model_config.syntax import LONGEST_LINE, parsed
from tecoinfer_modelzoo.text import shortened
from tecoinfer_modelzoo.trees import walk

NodeT = TypeVar("NodeT", bound=ast.AST)

TEXT_SUFFIXES = (".cfg", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml")
"""Endings of files that are read as text; all others are data."""

MAX_TEXT = 10_000_000
"""Maximum bytes of a text that is read; a larger file is reported."""

MAX_WRITTEN = 1_000_000
"""Maximum bytes of a handwritten text (:data:`WRITTEN`)."""

WRITTEN = (".cfg", ".md", ".py", ".sh", ".toml")

MOST_FOUND = 100
"""Maximum number of findings of one rule per file or folder."""

SHOWN = 80
"""Maximum characters of a line that a message quotes."""

SKIPPED = {"__pycache__", ".git", ".ipynb_checkpoints"}
"""Folders that are skipped."""


class Broken(NamedTuple):
    """A rule violation: ``file`` is relative to the root, ``line`` counts from 1; 0 means the whole file."""

    file: str
    line: int
    message: str
    fix: str


class SourceFile:
    """One file of the tree.

    Attributes:
        name: path relative to the root, with forward slashes.
        path: location of the file.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.path = root / name
        self.root = root

    @property
    def suffix(self) -> str:
        """Suffix of the name in lower case, such as ``.py``."""
        return PurePosixPath(self.name).suffix.lower()

    @cached_property
    def size(self) -> int | None:
        """Size in bytes of a regular file, or of the target of a link within the tree; ``None`` for anything else."""
        try:
            if self.path.is_symlink() and not inside(self.path, self.root):
                return None
            info = self.path.stat()
        except OSError:
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    @property
    def most(self) -> int:
        """Maximum bytes that are read."""
        return MAX_WRITTEN if self.is_written else MAX_TEXT

    @property
    def is_written(self) -> bool:
        """Whether it is a handwritten text, which has a lower limit on size and line length."""
        return self.suffix in WRITTEN or PurePosixPath(self.name).name == "requirements.txt"

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the text, each cut to the checked length."""
        return [line[:LONGEST_LINE] for line in self.text.split("\n")]

    @cached_property
    def _read(self) -> tuple[bytes, str]:
        if self.size is None or self.size > self.most:
            return b"", ""
        try:
            return self.path.read_bytes(), ""
        except OSError as error:
            return b"", error.strerror or type(error).__name__

    @property
    def data(self) -> bytes:
        """Content of the file; empty if it cannot be read or is too large for a text."""
        return self._read[0]

    @property
    def unreadable(self) -> str:
        """Reason why a regular file could not be read; empty if it could."""
        return self._read[1]

    @cached_property
    def text(self) -> str:
        """Content with LF line ends; invalid UTF-8 is replaced so that the other rules can run."""
        text = self.data.decode("utf-8-sig", errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n")

    @cached_property
    def _parsed(self) -> tuple[ast.Module, tuple[int, str] | None]:
        empty = ast.Module([], [])
        if self.suffix != ".py":
            return empty, None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes are not checked here
                return parsed(self.text), None
        except SyntaxError as error:
            return empty, (error.lineno or 0, error.msg)
        except ValueError as error:  # null bytes, nesting too deep
            return empty, (0, str(error))

    @property
    def tree(self) -> ast.Module:
        """Syntax tree; an empty module if the file cannot be parsed."""
        return self._parsed[0]

    @property
    def syntax_error(self) -> tuple[int, str] | None:
        """Line and message of the syntax error of a Python file."""
        return self._parsed[1]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree except docstrings."""
        return list(_walk(self.tree))

    def of(self, kind: type[NodeT]) -> list[NodeT]:
        """Return the nodes of a type."""
        return [node for node in self.nodes if isinstance(node, kind)]

    def line(self, number: int) -> str:
        """Return the start of a line, for a message."""
        return shortened(self.text.split("\n")[number - 1].strip(), SHOWN, end=False)

    def broken(self, line: int, message: str, fix: str) -> Broken:
        """Return a rule violation in this file."""
        return Broken(self.name, line, message, fix)


class Folder:
    """A model's folder as a pull request contains it: the files git tracks, or without git all files.

    Attributes:
        case: the case that uses it. root: the repository.
        files: all files and links below ``case.run_dir``.
        tasks: tasks of ``contrib/utils`` that its scripts run.
        flags: flags of its scripts by file name, filled on demand.

    Args:
        foreign: queries contributed code; default: with the limits of a step.
    """

    def __init__(self, case: Case, root: Path, foreign: Foreign | None = None) -> None:
        self.tasks = Tasks(foreign or Foreign(root))
        self.flags: dict[str, frozenset[str] | None] = {}
        self.case = case
        self.root = root
        self.run_dir = PurePosixPath(case.run_dir).as_posix()
        self.path = root / self.run_dir
        self.files = [SourceFile(name, root) for name in listed(self.run_dir, root)]
        self._by_name = {source.name: source for source in self.files}

    def find(self, name: str) -> SourceFile | None:
        """Return the file of this name relative to the folder; ``None`` if the pull request does not contain it."""
        return self._by_name.get(self.full(name))

    def full(self, name: str) -> str:
        """Return the path of a file of the folder relative to the root, such as ``example/a/b/README.md``."""
        return os.path.normpath(f"{self.run_dir}/{name}").replace(os.sep, "/")

    @property
    def readme(self) -> SourceFile:
        """The README; a source with empty text if it is missing."""
        return self.find("README.md") or SourceFile(self.full("README.md"), self.root)

    @property
    def scripts(self) -> Iterator[tuple[Command, SourceFile]]:
        """Each step with its script, if the script exists."""
        for step in self.case.steps:
            source = self.find(step.run_file)
            if source is not None:
                yield step, source

    @property
    def examples(self) -> Iterator[tuple[Command, SourceFile]]:
        """Scripts that run the model: every step but the export, each script once."""
        seen: set[str] = set()
        for step, source in self.scripts:
            if step.name != "export" and source.name not in seen and source.suffix == ".py":
                seen.add(source.name)
                yield step, source

    def broken(self, message: str, fix: str) -> Broken:
        """Return a rule violation of the folder as a whole."""
        return Broken(self.run_dir, 0, message, fix)


def listed(folder: str, root: Path) -> list[str]:
    """Return the files and links below a folder, relative to the root and sorted; links are not followed."""
    names = [name for name in _git_listed(folder, root) if os.path.lexists(root / name)]
    return sorted(set(names) or _walked(folder, root))


def inside(path: Path, root: Path) -> bool:
    """Return whether a path with all links resolved lies in the tree."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _git_listed(folder: str, root: Path) -> list[str]:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder]
    try:
        ran = subprocess.run(command, capture_output=True, check=False)
    except OSError:  # git is not installed
        return []
    return [os.fsdecode(name) for name in ran.stdout.split(b"\0") if name] if ran.returncode == 0 else []


def _walked(folder: str, root: Path) -> Iterable[str]:
    for here, folders, files in walk(root / folder):
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        folders[:] = [name for name in folders if name not in SKIPPED]
        yield from (Path(here, name).relative_to(root).as_posix() for name in [*files, *links])


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if not _documents(node, child)]


def _documents(node: ast.AST, child: ast.AST) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and hasattr(node, "body")
