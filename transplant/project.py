"""Migration of a file or a folder into another folder; the input is not modified."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from engine import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.trees import walk
from transplant.edits import TODO, Edit, Finding, apply
from transplant.migrate import INTERESTING, Options, migrate
from transplant.notebook import Notebook, NotNotebookError, migrate_notebook
from transplant.operators import called, level_of
from transplant.others import is_read, look
from transplant.placing import imports_torch, needs_card
from transplant.script import Script
from transplant.source import Decoded, NotPythonError, decode

CACHES = frozenset(
    [
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
        ".eggs",
    ]
)
"""Folders that are not copied: caches and version control."""

LOG, CHANGES, OPERATORS, LAUNCHER = (
    "msFmkTranspltlog.txt",
    "change_list.csv",
    "unsupported_op.xlsx",
    "run_distributed_sdaa.sh",
)
"""Files written in addition to the scripts."""

MOST = 4 << 20
"""Maximum bytes of an analysed Python file."""

_TRAINS = re.compile(r"\.backward\(|\.fit\(|\.train\(\)|\.train_step\(")
"""Calls of scripts that train."""

_PLACED = re.compile(r"(?i)sdaa|cuda|lightning|\b(xpu|npu|mps|hpu)\b")
"""Words of scripts that select a device, were migrated before, or have a finding of their own."""

_PLACELESS = frozenset({"torch.compile", "import torch_sdaa"})
"""Rules that select no device."""

_IMPORTS_TORCH = re.compile(r"(?m)^\s*(?:import|from)\s+torch\b")

_PLACE = "import torch_sdaa, and move the model and every batch to the device with .to('sdaa')"

_GUARD = re.compile(r"""__name__\s*==\s*['"]__main__|['"]__main__['"]\s*==""")


@dataclass(frozen=True, slots=True)
class Note:
    """A place that was not changed: file, place as text, line, and the fields of :class:`Finding`."""

    file: str
    place: str
    line: int
    kind: str
    what: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change: file, place as text, line, and the edit of the file's text."""

    file: str
    place: str
    line: int
    edit: Edit


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator without a kernel on the card, and the place of its call."""

    file: str
    place: str
    name: str
    level: str


@dataclass(slots=True)
class Outcome:
    """Results for a project.

    Attributes:
        files: files of the output, relative to its root. links: symbolic links and their targets.
        written: new content of changed files. texts: their text before and after, for a diff.
        changes, notes, operators: in the order of the files. problems: one for each file that could not be migrated.
        scripts: number of Python files and notebooks.
    """

    files: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    written: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    problems: list[Note] = field(default_factory=list)
    scripts: int = 0
    uses_torch: bool = False

    @property
    def todo(self) -> list[Note]:
        """Places for manual work."""
        return [*self.problems, *(note for note in self.notes if note.kind == TODO)]


@dataclass(slots=True)
class Project:
    """Migration of the files of an input.

    Attributes:
        root: folder of the input. only: the file, if the input is a single file.
        options: of the rules. levels: how the card serves operators, by name; empty if unknown.
        placeless: executed scripts whose own code selects no device.
    """

    root: Path
    only: str
    options: Options
    levels: Mapping[str, frozenset[str]] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    placeless: list[str] = field(default_factory=list)

    def run(self) -> Outcome:
        """Read every file, and determine its changes."""
        names = [self.only] if self.only else list(self._walk())
        idle: list[str] = []
        for name in names:
            content = self._content(name)
            if content is None:
                continue
            self.outcome.files.append(name)
            if name.endswith((".py", ".pyw")):
                self._python(name, content, idle)
            elif name.endswith(".ipynb"):
                self._notebook(name, content)
            elif is_read(name):
                self._other(name, content)
        for name in idle:
            if self.outcome.changes:
                self._start(name)
        for name in self.placeless:
            self._unplaced(name)
        return self.outcome

    # --------------------------------------------------------------------------------------------------------- folder

    def _walk(self) -> Iterator[str]:
        """Yield the files below the root in order; links inside of it are kept, other links are reported."""

        def failed(error: OSError) -> None:
            self._problem(self._name(Path(error.filename)), f"cannot be read ({error.strerror}); it is skipped")

        for folder, folders, files in walk(self.root, onerror=failed):
            here = Path(folder)
            for name in sorted(folders):
                if (here / name).is_symlink():
                    self._link(here / name)
            folders[:] = sorted(n for n in folders if n not in CACHES and not (here / n).is_symlink())
            for name in sorted(files):
                path = here / name
                if path.is_symlink():
                    self._link(path)
                elif not name.endswith((".pyc", ".pyo")):
                    yield self._name(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def _link(self, path: Path) -> None:
        target = os.readlink(path)
        inside = not os.path.isabs(target) and Path(os.path.realpath(path)).is_relative_to(self.root.resolve())
        if inside:
            self.outcome.links[self._name(path)] = target
        else:
            self._problem(self._name(path), f"is a link to {target}, outside of the input; it is skipped")

    def _content(self, name: str) -> bytes | None:
        """Return a file's content if it is read, else b""; ``None`` if it cannot be copied."""
        path = self.root / name
        script = name.endswith((".py", ".pyw", ".ipynb"))
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                self._problem(name, "is a device, a pipe or a socket; it is skipped")
                return None
            if not script and not is_read(name):
                with path.open("rb"):
                    return b""
            if not script and found.st_size > MOST:
                return b""
            return read_regular(path)
        except OSError as error:
            self._problem(name, f"cannot be read ({error.strerror or error}); it is skipped")
            return None

    def _problem(self, name: str, message: str, line: int = 0, place: str = "") -> None:
        words, _, fix = message.partition("; ")
        self.outcome.problems.append(Note(name, place or (str(line) if line else ""), line, TODO, "", words, fix))

    # ---------------------------------------------------------------------------------------------------------- files

    def _python(self, name: str, content: bytes, idle: list[str]) -> None:
        self.outcome.scripts += 1
        try:
            stored = decode(content)
        except NotPythonError as error:
            self._problem(name, str(error), error.line)
            return
        self.outcome.uses_torch |= bool(re.search(r"\b(torch|cuda)\b", stored.text))
        run = bool(self.only) or bool(_GUARD.search(stored.text))
        main = bool(self.options.target) and name == self.options.entry
        if not (INTERESTING.search(stored.text) or self.options.rules.rules or self.options.target or self.levels):
            idle += [name] if run else []
            self.placeless += [name] if run else []
            return
        if len(content) > MOST:
            self._problem(name, f"has more than {MOST >> 20} MiB; migrate it by hand")
            return
        try:
            script = migrate(stored.text, self.options, run=run, main=main)
        except NotPythonError as error:
            if INTERESTING.search(stored.text):
                self._problem(name, str(error), error.line)
            else:
                self.outcome.notes.append(Note(name, str(error.line), error.line, "kept", "", str(error), ""))
            return
        if run and not script.edits:
            idle.append(name)
        if run and {edit.rule for edit in script.edits} <= _PLACELESS and not needs_card(script):
            self.placeless.append(name)
        self._keep_script(name, stored, script)

    def _keep_script(self, name: str, stored: Decoded, script: Script) -> None:
        for edit in script.edits:
            line = script.lines.place(edit.start)[0]
            self.outcome.changes.append(Change(name, str(line), line, edit))
        for finding in script.findings:
            line = script.lines.place(finding.start)[0]
            self._note(name, str(line), line, finding)
        for start, function in called(script):
            self._operator(name, str(script.lines.place(start)[0]), function)
        self._store(name, stored, script.edits)

    def _start(self, name: str) -> None:
        """Import torch_sdaa in an executed script if only its imported modules were changed."""
        from transplant.placing import place_import

        try:
            stored = decode(read_regular(self.root / name))
            script = Script(stored.text)
        except (OSError, NotPythonError):
            return  # already reported
        if not imports_torch(script) and not _imports_own(script.text, self.root, name):
            return
        place_import(script, True, self.options.choose)
        self._keep_script(name, stored, script)

    def _unplaced(self, name: str) -> None:
        """Report an executed script that trains, and selects no device: it would train on the CPU."""
        try:
            text = decode(read_regular(self.root / name)).text
        except (OSError, NotPythonError):
            return  # already reported
        found = _TRAINS.search(text)
        if found is None or _PLACED.search(text) or not _IMPORTS_TORCH.search(text):
            return
        if self.outcome.changes and _imports_own(text, self.root, name):
            return  # a module of the project selects it
        line = text.count("\n", 0, found.start()) + 1
        note = Note(name, str(line), line, TODO, found[0], "nothing selects a device: it trains on the CPU", _PLACE)
        self.outcome.notes.append(note)

    def _store(self, name: str, stored: Decoded, edits: list[Edit]) -> None:
        if not edits:
            return
        new = apply(stored.text, edits)
        try:
            self.outcome.written[name] = stored.encode(new)
            self.outcome.texts[name] = (stored.text, new)
        except UnicodeEncodeError as error:
            self.outcome.changes[:] = [change for change in self.outcome.changes if change.file != name]
            self._problem(
                name, f"is in {stored.encoding}, which lacks {error.object[error.start]!r} of a rule; save it as UTF-8"
            )

    def _note(self, name: str, place: str, line: int, finding: Finding) -> None:
        what = " ".join(finding.what.split())
        note = Note(name, place, line, finding.kind, what[:200], finding.reason, finding.fix)
        self.outcome.notes.append(note)

    def _operator(self, name: str, place: str, function: str) -> None:
        level = level_of(function, self.levels)
        if level:
            self.outcome.operators.append(Operator(name, place, function, level))

    def _notebook(self, name: str, content: bytes) -> None:
        self.outcome.scripts += 1
        try:
            mark = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
            stored = Decoded(content[len(mark) :].decode("utf-8"), "utf-8", mark)
            self.outcome.uses_torch |= bool(re.search(r"\b(torch|cuda)\b", stored.text))
            found: Notebook = migrate_notebook(stored.text, self.options)
        except UnicodeDecodeError:
            self._problem(name, "is not UTF-8, which notebooks require; it is copied unchanged")
            return
        except NotNotebookError as error:
            self._problem(name, str(error))
            return
        for cell, message in found.problems:
            self._problem(name, message, place=f"cell {cell}" if cell else "")
        for edit in found.edits:
            line = stored.text[: edit.start].count("\n") + 1
            self.outcome.changes.append(Change(name, str(line), line, edit))
        for cell, line, finding in found.findings:
            self._note(name, f"cell {cell}, line {line}", line, finding)
        self._store(name, stored, found.edits)

    def _other(self, name: str, content: bytes) -> None:
        text = content.decode("utf-8", errors="replace")
        if PurePosixPath(name).name in (LOG, CHANGES, OPERATORS, LAUNCHER):
            return
        for line in look(name, text):
            note = Note(name, str(line.number), line.number, TODO, line.what, line.reason, line.fix)
            self.outcome.notes.append(note)


def _imports_own(text: str, root: Path, name: str) -> bool:
    """Return whether a script imports a module of the project."""
    here = (root / name).parent
    words = set(re.findall(r"(?m)^\s*(?:from|import)\s+\.*(\w+)", text))
    return any((base / word).is_dir() or (base / f"{word}.py").is_file() for word in words for base in (here, root))


def split(given: Path) -> tuple[Path, str]:
    """Return the folder of an input, and the file's name if it is a file.

    Raises:
        ConfigError: it is neither a file nor a folder.
    """
    path = Path(os.path.abspath(given))
    if path.is_dir():
        return path, ""
    if not path.is_file():
        raise ConfigError(
            f"--input {given} is neither a file nor a folder; give a training script, or the folder of a project"
        )
    if path.suffix not in (".py", ".pyw", ".ipynb"):
        raise ConfigError(
            f"--input {given} is neither a Python file nor a notebook; give a .py or .ipynb file, or a folder"
        )
    return path.parent, path.name
