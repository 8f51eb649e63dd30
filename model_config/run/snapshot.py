"""Copies of the checkout outside a model's folder, made once per check, that the steps see.

Links into the checkout would let a step write there. All cases share the copies; changes are detected afterwards by
file times (ctime), which a process cannot set.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.distribution import COPY_OF
from tecoinfer_modelzoo.text import one_line
from tecoinfer_modelzoo.trees import remove_tree

WEIGHTS = (
    ".ckpt",
    ".engine",
    ".onnx",
    ".pdiparams",
    ".pdmodel",
    ".pdparams",
    ".pt",
    ".pth",
    ".safetensors",
    ".tecoengine",
)
"""Endings of model files."""

LARGEST = 64 << 20
MOST = 1 << 30
"""Maximum bytes of one copied file, and of all together; larger files are linked, and watched too."""

_BYTECODE = "__pycache__"

COMPILED = ("engine", "utils", "tecoinfer_modelzoo", "contrib/utils")
"""Packages that steps import."""

_COMPILING = 120.0
"""Timeout of the compilation in seconds; without bytecode the steps only take longer."""


@dataclass(slots=True)
class Snapshot:
    """Copies of a checkout's files below ``folder``, from the time of its creation.

    Attributes:
        folder: root of the copies. root: the checkout.
        linked: files that are linked, for their size or because git ignores them, with their state in the checkout.
        state: state of all copied files; of folders, the names of their entries.
        broken: whether a change was detected.
        users: number of cases that use it.
    """

    folder: Path
    root: Path
    linked: dict[Path, object] = field(default_factory=dict)
    state: dict[str, object] = field(default_factory=dict)
    broken: bool = False
    users: int = 0

    def changed(self) -> list[str]:
        """Return the files that have changed, relative to the checkout, sorted.

        Changed bytecode files mark the snapshot as broken but are not returned.
        """
        now = _state(self.folder)
        found = {name for name in now.keys() | self.state.keys() if now.get(name) != self.state.get(name)}
        self.broken = self.broken or bool(found)
        named = {name for name in found if _BYTECODE not in name}
        named |= {str(path.relative_to(self.root)) for path, was in self.linked.items() if _of_file(path) != was}
        return sorted(named)


class Snapshots:
    """Snapshots of a check: one, and a new one after each change; at most one more than parallel cases.

    Args:
        root: the checkout. work_dir: folder for the snapshots, which :meth:`close` deletes.
    """

    def __init__(self, root: Path, work_dir: Path) -> None:
        self._root, self._work_dir = root, work_dir
        self._lock = threading.Lock()
        self._made: list[Snapshot] = []

    def current(self) -> Snapshot:
        """Return a snapshot without detected changes.

        Raises:
            ConfigError: the checkout cannot be copied.
        """
        with self._lock:
            if not self._made or self._made[-1].broken:
                try:
                    folder = Path(tempfile.mkdtemp(prefix="zoo-", dir=self._work_dir))
                    self._made.append(_snapshot(self._root, folder))
                except OSError as error:
                    raise ConfigError(
                        f"{self._root} cannot be copied to {self._work_dir}: {one_line(error)}; "
                        "make room there, or choose another --work_dir"
                    ) from error
            self._made[-1].users += 1
            return self._made[-1]

    def done(self, snapshot: Snapshot) -> None:
        """Release a snapshot after a case; the last user deletes a changed snapshot."""
        with self._lock:
            snapshot.users -= 1
            if not snapshot.broken or snapshot.users:
                return
            self._made.remove(snapshot)
        remove_tree(snapshot.folder)

    def close(self) -> None:
        """Delete all snapshots."""
        for snapshot in self._made:
            remove_tree(snapshot.folder)


def _snapshot(root: Path, folder: Path) -> Snapshot:
    made = Snapshot(folder, root)
    unwanted, left = _ignored_below(root), MOST
    waiting = [""]
    while waiting:
        below = waiting.pop()
        for entry in _listed(root / below):
            name = f"{below}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == _BYTECODE or (entry.name.startswith(".") and (is_folder or not below)):
                continue
            with suppress(FileNotFoundError):  # a file that is being removed
                if not is_folder:
                    left -= _taken(entry, f"{folder}/{name}", made, name in unwanted, left)
                elif entry.path not in (str(folder), str(folder.parent)):
                    os.mkdir(f"{folder}/{name}")
                    waiting.append(f"{name}/")
    _compile(folder)
    (folder / COPY_OF).write_text(os.path.abspath(root), encoding="utf-8", errors="surrogateescape")
    made.state = _state(folder)
    return made


def _compile(folder: Path) -> None:
    """Compile the packages that steps import, once for all of them.

    Steps may not write bytecode, so in a fresh clone each of them would compile every module it imports, which takes
    half of the time of a short step. Bytecode of the checkout is not copied: Python takes it for that of the source
    if the size and the second of the change are the same. No code of the packages runs; it is a process of its own, so
    that a file that crashes the compiler does not end the check: the step that imports it reports it.
    """
    places = [str(folder / name) for name in COMPILED if (folder / name).is_dir()]
    if not places:
        return
    command = [sys.executable, "-I", "-m", "compileall", "-q", "-q", *places]
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_COMPILING)


def _taken(source: os.DirEntry[str], target: str, made: Snapshot, unwanted: bool, left: int) -> int:
    """Copy or link a file of the checkout; return the bytes copied.

    Args:
        unwanted: whether git ignores it. left: bytes that may still be copied.
    """
    found, path = source.stat(follow_symlinks=False), Path(source.path)
    if stat.S_ISLNK(found.st_mode):
        _link_again(path, Path(target), made)
        return 0
    weights = unwanted and source.name.endswith(WEIGHTS)  # missing in a fresh clone
    if weights or not stat.S_ISREG(found.st_mode):
        return 0
    if not unwanted and found.st_size <= min(LARGEST, left):
        with suppress(PermissionError):
            _copied(source.path, target, found)
            return found.st_size
    os.symlink(path.absolute(), target)
    made.linked[path] = _of_file(path)
    return 0


def _copied(source: str, target: str, found: os.stat_result) -> None:
    """Copy a file with few system calls: a checkout has thousands of small files."""
    reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # in case it has become a pipe
    try:
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(found.st_mode) | stat.S_IWUSR)
        try:
            while some := os.read(reading, 1 << 20):
                while some:
                    some = some[os.write(writing, some) :]
            os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))  # bytecode refers to the source's time
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _link_again(source: Path, target: Path, made: Snapshot) -> None:
    """Create a link to the copy of the original target, or to the same target outside the checkout."""
    real, root = Path(os.path.realpath(source)), Path(os.path.realpath(made.root))
    target.symlink_to(made.folder / real.relative_to(root) if real.is_relative_to(root) else real)


def _state(folder: Path) -> dict[str, object]:
    """Return the states of all entries of a folder by relative name, to detect writes."""
    found: dict[str, object] = {}
    waiting = [(str(folder), "")]
    while waiting:
        place, name = waiting.pop()
        for entry in _listed(place):
            text = f"{name}{entry.name}"
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{text}/"))
                    found[text] = "folder"
                else:
                    found[text] = _times(entry.stat(follow_symlinks=False))
    return found


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; empty if it cannot be read or is being removed."""
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _of_file(path: Path) -> object:
    try:
        return _times(path.stat())
    except OSError:
        return None


def _times(found: os.stat_result) -> object:
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _ignored_below(root: Path) -> frozenset[str]:
    """Return the files below a folder that git ignores; none without git, or outside a repository."""
    command = ["git", "ls-files", "-z", "--others", "--ignored", "--exclude-standard"]
    return frozenset(name for name in _asked_git(command, b"", root).split("\0") if name)


def ignored(folder: Path, names: list[str]) -> list[str]:
    """Return the files of a folder that git ignores; empty without git or outside a repository."""
    said = _asked_git(
        ["git", "check-ignore", "-z", "--stdin"], "\0".join(names).encode(errors="surrogateescape"), folder
    )
    return [name for name in said.split("\0") if name]


def _asked_git(command: list[str], given: bytes, folder: Path) -> str:
    try:
        ran = subprocess.run(command, input=given, cwd=folder, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):  # git is not installed, or did not answer
        return ""
    return ran.stdout.decode(errors="surrogateescape")


def names_of(changed: list[str]) -> Iterator[str]:
    """Yield the first few of many names."""
    yield from changed[:5]
    if len(changed) > 5:
        yield f"{len(changed) - 5} more"
