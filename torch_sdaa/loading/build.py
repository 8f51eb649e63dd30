"""Compilation of the extension at the first import, into the cache folder.

The name of a compiled file contains a key of its dependencies: sources, torch, its ABI, Python, flags. A file is only
used if no other user can have written it, and ends with a hash of its content (loaders ignore data after the last
section), so that a damaged file is detected and compiled again. One process compiles at a time; others wait.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import torch

from tecoinfer_modelzoo.cache import cache_folder, exclusive_file
from tecoinfer_modelzoo.files import read_regular, write_file
from tecoinfer_modelzoo.text import one_line, reason_of, shortened

SOURCES = Path(__file__).resolve().parents[1] / "csrc"
NAME = "_sdaa"
TESTED = ("2.13",)
"""Tested versions of torch."""

KEPT = 16
"""Maximum number of compiled files in the folder, 1.5 MB each; the least recently used are removed."""

_COMPILERS = ("g++", "c++", "clang++")
_ABANDONED = 3600.0
"""Seconds after which a folder left by a killed compilation is removed."""
_MARKED = 60.0

_log = logging.getLogger(__name__)


class BuildError(ImportError):
    """The extension cannot be compiled or loaded; the message is one line with the reason and the fix."""


# ----------------------------------------------------------------------------------------------------- configuration


def key() -> str:
    """Return the key of the compiled file's dependencies, 20 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    made_for = (torch.__version__, torch.version.git_version, sysconfig.get_config_var("EXT_SUFFIX"), flags())
    digest.update(repr(made_for).encode())
    return digest.hexdigest()[:20]


def flags() -> list[str]:
    """Return the compiler flags without paths."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    own = _words("TECO_SDAA_CXXFLAGS")
    return ["-O2", "-std=c++20", "-fPIC", "-shared", "-w", abi, f"-DTORCH_EXTENSION_NAME={NAME}", *own]


def _words(name: str) -> list[str]:
    """Return the words of an environment variable, split like in a shell; raise BuildError if a quote is not closed."""
    text = os.environ.get(name, "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BuildError(f"{name}={text!r} cannot be parsed ({error}); use shell syntax, or unset it") from error


def command(output: Path) -> list[str]:
    """Return the compiler's command line; raise BuildError if none is installed."""
    root = Path(torch.__file__).parent
    ours = [root / "include", root / "include/torch/csrc/api/include", root / "include/kineto"]
    return [
        *_compiler(),
        *flags(),
        *(f"-I{path}" for path in (*ours, sysconfig.get_paths()["include"])),
        str(SOURCES / "sdaa.cpp"),
        "-o",
        str(output),
        f"-L{root / 'lib'}",
        # Without rpath: importing torch has loaded them.
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
    ]


def _compiler() -> list[str]:
    """Return the compiler's command: ``CXX``, else the first installed one of the usual names."""
    whole = os.environ.get("CXX", "")
    own = [whole] if shutil.which(whole) else _words("CXX")  # a path may have spaces
    if own and shutil.which(own[0]) is None:
        raise BuildError(f"CXX={own[0]!r} is not a program; set it to a C++ compiler, or unset it")
    found = next(filter(shutil.which, _COMPILERS), None)
    if not own and found is None:
        raise BuildError(
            "torch_sdaa compiles its extension at the first import, but no C++ compiler was found; run: apt-get "
            "install g++ (Debian, Ubuntu; elsewhere the package gcc-c++ or gcc), in addition to pip's extra 'train'"
        )
    return own or [str(found)]


def _check_platform() -> None:
    if sys.platform != "linux":
        raise BuildError(f"torch_sdaa runs on Linux; this is {sys.platform}")
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if not header.is_file():
        python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        raise BuildError(
            "torch_sdaa compiles its extension at the first import, but Python's headers are missing "
            f"({header}); run: apt-get install {python}-dev (Debian, Ubuntu; elsewhere python3-devel)"
        )


# ------------------------------------------------------------------------------------------------------------- folders


def _places() -> Iterator[Path]:
    """Yield the folders of compiled files: the cache folder, and a temporary one if that is not writable."""
    folder = cache_folder("torch_sdaa")
    if folder is not None:
        yield folder.resolve()
    yield _temporary()


def _temporary() -> Path:
    return Path(tempfile.gettempdir(), f"torch_sdaa-{os.getuid()}")


def _is_safe(path: Path, kind: int) -> bool:
    """Return whether a path has this type (``stat.S_IFREG``, ``S_IFDIR``) and no other user can write to it.

    The file is executed as this user; its owner must be this user or root.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    own = found.st_uid in (os.getuid(), 0)
    return stat.S_IFMT(found.st_mode) == kind and own and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _make_private(folder: Path) -> bool:
    """Remove write permission for others from a folder of this user; return whether it can be used."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            folder.chmod(stat.S_IMODE(found.st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))
    except OSError as error:
        _log.info("%s cannot be used: %s", folder, error)
        return False
    return _is_safe(folder, stat.S_IFDIR) and os.access(folder, os.W_OK | os.X_OK)


def _place_to_write() -> Path:
    """Return the folder for a compiled file; report it if it is not the cache folder.

    Raises:
        BuildError: there is none.
    """
    wanted, temporary = cache_folder("torch_sdaa"), _temporary()
    if wanted is not None and _make_private(wanted.resolve()):
        return wanted.resolve()
    if not _make_private(temporary):
        raise BuildError(f"{temporary} is writable by other users; set TECO_CACHE_DIR to a private folder")
    why = "no cache folder is available" if wanted is None else f"{wanted} is writable by other users"
    _say(f"{why}: the extension is stored in {temporary}; set TECO_CACHE_DIR for another folder")
    return temporary


def _is_whole(path: Path) -> bool:
    """Return whether a compiled file exists, is safe to use, and is undamaged."""
    if not (_is_safe(path.parent, stat.S_IFDIR) and _is_safe(path, stat.S_IFREG)):
        return False
    try:
        content = memoryview(read_regular(path))
    except OSError as error:
        _log.info("%s cannot be read: %s", path, error)
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


# --------------------------------------------------------------------------------------------------------- compilation


def compiled() -> Path:
    """Return the compiled file; compile it if it is missing or damaged.

    Raises:
        BuildError: it cannot be compiled; the message has the package to install, or the compiler's first error.
    """
    name = f"{NAME}-{key()}.so"
    for place in _places():
        if _is_whole(place / name):
            _mark_used(place / name)
            return place / name
    _check_platform()
    _compiler()
    path = _place_to_write() / name
    with exclusive_file(path.parent / ".lock", lambda: _say("waiting for another process that compiles the extension")):
        if not _is_whole(path):
            try:
                _compile(path)
            except OSError as error:
                raise BuildError(f"the extension cannot be compiled into {path.parent}: {error.strerror}") from error
    return path


def _mark_used(path: Path) -> None:
    """Update the modification time of a used file, at most once a minute."""
    try:
        if time.time() - path.stat().st_mtime > _MARKED:
            os.utime(path)
    except OSError as error:  # a read-only folder is not cleaned up either
        _log.debug("%s: %s", path, error)


def _compile(path: Path) -> None:
    """Compile the file; keep only it, or the log of a failure."""
    _tidy(path.parent)
    log = path.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=path.parent) as work:
        built, messages = Path(work, f"{NAME}.so"), Path(work, "log")
        code = _run(command(built), messages)
        if code or not built.is_file():
            messages.replace(log)
            raise BuildError(_failure(log, code))
        content = built.read_bytes()
        # An existing file or link would keep its owner and permissions, which are not trusted.
        path.unlink(missing_ok=True)
        write_file(path, content, hashlib.sha256(content).digest())
    log.unlink(missing_ok=True)


def _run(words: list[str], log: Path) -> int:
    """Run the compiler with its messages in a file, show progress, and return its exit code."""
    # Its temporary files are next to the log, so that removing the folder removes all.
    env = {**os.environ, "LC_ALL": "C", "TMPDIR": str(log.parent)}
    with log.open("wb") as file, _progress() as show:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env)
        try:
            while True:
                show()
                try:
                    return process.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if process.poll() is None:
                for pid in (*_children(process.pid), process.pid):  # its child processes do the work
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:  # it has ended
        return []


@contextmanager
def _progress() -> Iterator[_Progress]:
    shown = _Progress()
    try:
        yield shown
    finally:
        shown.end()


class _Progress:
    """Progress on stderr: elapsed seconds on a terminal, else one line at the beginning."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = sys.stderr is not None and sys.stderr.isatty()
        known = "" if _is_tested() else f" (tested with {', '.join(TESTED)})"
        self._text = f"compiling the extension for torch {torch.__version__}{known}, this once"
        if not self._live:
            _say(f"{self._text}; this takes about 45 s on one core")

    def __call__(self) -> None:
        """Show the elapsed seconds."""
        if self._live:
            sys.stderr.write(f"\rtorch_sdaa: {self._text}: {time.monotonic() - self._start:.0f} s")
            sys.stderr.flush()

    def end(self) -> None:
        """End the line."""
        if self._live:
            self()
            sys.stderr.write("\n")


def _is_tested() -> bool:
    return any(torch.__version__.startswith(f"{version}.") for version in TESTED)


def _failure(log: Path, code: int) -> str:
    """Return one line: the compiler's first error, the log file, and the tested versions."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in lines if line.strip()] or [f"the compiler's exit code is {code}"]
    first = next((line for line in lines if "error:" in line), lines[0])
    by = f" by CXX={os.environ['CXX']!r}" if os.environ.get("CXX") else ""
    tested = "" if _is_tested() else f" {torch.__version__}; it is tested with {', '.join(TESTED)}"
    memory = "; it needs 2 GB of memory" if "Killed" in first else ""
    why = f"{shortened(one_line(first), 300)}{memory}"
    return f"the extension does not compile{by} with torch{tested}: {why} (all messages: {log})"


def _tidy(folder: Path) -> None:
    """Remove leftovers of killed compilations and the least recently used files; loaded ones stay usable."""
    for left in folder.glob(f".{NAME}-*"):
        if time.time() - left.lstat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)
    files = sorted(folder.glob(f"{NAME}-*.so"), key=lambda path: path.lstat().st_mtime, reverse=True)
    for path in files[KEPT - 1 :]:
        path.unlink(missing_ok=True)
        path.with_suffix(".log").unlink(missing_ok=True)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"torch_sdaa: {text}\n")
        sys.stderr.flush()


# ------------------------------------------------------------------------------------------------------------- loading


def load() -> ModuleType:
    """Return the extension; compile it first if necessary, and raise BuildError if it cannot be compiled or loaded."""
    path = compiled()
    try:
        ctypes.CDLL(str(path))
    except OSError as error:  # perhaps another compiler's runtime; nothing of it has run yet
        _log.info("%s: %s", path, error)
        path.unlink(missing_ok=True)
        path = compiled()
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(
            f"the compiled extension cannot be loaded: {reason_of(error)}; if its folder is mounted noexec, set "
            "TECO_CACHE_DIR to another folder"
        ) from error
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
