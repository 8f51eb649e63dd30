"""The extension is compiled once and stored safely; errors are one line. The compiler is a stand-in."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_sdaa.loading import build
from torch_sdaa.loading.build import BuildError

COMPILER = """#!/bin/sh
echo $$ >> {folder}/calls
{body}
while [ "$1" != -o ]; do shift; done
echo compiled > "$2"
"""
"""A compiler that counts its calls; its output is not a library."""

Make = Callable[..., Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of compiled files in a new cache."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "cache" / "torch_sdaa"


@pytest.fixture
def compiler(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that replaces the compiler."""

    def make(body: str = "") -> Path:
        script = tmp_path / "compiler"
        script.write_text(COMPILER.format(folder=tmp_path, body=body))
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
        return script

    make()
    return make


def calls(tmp_path: Path) -> list[int]:
    """Return the process numbers of the compiler's runs."""
    file = tmp_path / "calls"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def forked(work: Callable[[], object]) -> int:
    """Start a process like this one that runs a function, and return its number; exit code 0 if it ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: torch has threads, none of which is used
        child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


def test_one_of_many_processes_compiles(tmp_path: Path, cache: Path, compiler: Make) -> None:
    compiler("sleep 0.5")
    children = [forked(build.compiled) for _ in range(5)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    assert len(calls(tmp_path)) == 1
    assert sorted(path.name for path in cache.iterdir()) == [".lock", f"_sdaa-{build.key()}.so"]
    assert build.compiled() == cache / f"_sdaa-{build.key()}.so"
    assert len(calls(tmp_path)) == 1


def test_a_killed_compilation_does_not_block_others(tmp_path: Path, cache: Path, compiler: Make) -> None:
    compiler("exec sleep 60")
    child = forked(build.compiled)
    while not calls(tmp_path):
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    compiler()
    assert build.compiled().is_file()
    os.kill(calls(tmp_path)[0], signal.SIGKILL)
    (left,) = cache.glob("._sdaa-*")
    os.utime(left, (0, 0))
    build.compiled().unlink()
    build.compiled()
    assert not list(cache.glob("._sdaa-*"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def changed(path: Path) -> None:
    path.write_bytes(b"C" + path.read_bytes()[1:])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o644)


def a_link(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("harm", [cut, changed, emptied, a_pipe, a_link, open_to_all, Path.unlink])
def test_untrusted_files_are_compiled_again(harm: Callable[[Path], None], tmp_path: Path, compiler: Make) -> None:
    path = build.compiled()
    whole = path.read_bytes()
    harm(path)
    assert build.compiled() == path
    assert len(calls(tmp_path)) == 2
    assert stat.S_IMODE(path.lstat().st_mode) == 0o644
    assert (path.is_symlink(), path.read_bytes()) == (False, whole)


def test_write_permission_for_others_is_removed(cache: Path, compiler: Make) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert build.compiled().parent == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o755


def test_without_a_cache_folder_a_temporary_one_is_used(
    tmp_path: Path, compiler: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "file"))
    folder = tmp_path / "temporary" / f"torch_sdaa-{os.getuid()}"
    assert build.compiled().parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"torch_sdaa: no cache folder is available: the extension is stored in {folder}; ")
    assert len(said) == 2  # the other one is that of compiling
    assert build.compiled().parent == folder
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path, cache: Path, compiler: Make) -> None:
    path = build.compiled()
    os.chown(cache, 12345, 12345)
    other = build.compiled()
    assert other.parent == tmp_path / "temporary" / "torch_sdaa-0"
    os.chown(other.parent, 12345, 12345)
    with pytest.raises(BuildError, match=r"writable by other users; .*TECO_CACHE_DIR"):
        build.compiled()
    os.chown(cache, 0, 0)
    os.chown(path, 12345, 12345)
    assert build.compiled() == path
    assert (path.stat().st_uid, len(calls(tmp_path))) == (0, 3)


def test_without_a_compiler_the_error_has_the_package(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ImportError, match=r"C\+\+ compiler .*install g\+\+ .*'train'$"):
        build.compiled()
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(BuildError, match=r"^CXX='no-such-compiler' is not a program"):
        build.compiled()
    assert not list(cache.glob("*"))


@pytest.mark.parametrize("name", ["CXX", "TECO_SDAA_CXXFLAGS"])
def test_an_unclosed_quote_is_one_line(name: str, compiler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "g++ '-O1")
    with pytest.raises(BuildError, match=rf'^{name}="g\+\+ \'-O1" cannot be parsed \(No closing quotation\)'):
        build.compiled()


def test_a_compilers_path_may_have_spaces(tmp_path: Path, compiler: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my tools").mkdir()
    monkeypatch.setenv("CXX", str(compiler().rename(tmp_path / "my tools" / "g++")))
    assert build.compiled().is_file()


def test_a_forked_child_does_not_hold_the_lock(
    cache: Path, compiler: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, children = build._run, []
    monkeypatch.setattr(build, "_run", lambda *words: (children.append(forked(signal.pause)), run(*words))[1])
    path = build.compiled()
    path.unlink()
    monkeypatch.undo()
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setenv("TECO_CACHE_DIR", str(cache.parent))
    capsys.readouterr()
    with pytest.raises(BuildError, match="CXX='/bin/false' with torch"):
        build.compiled()
    assert "another process compiles" not in capsys.readouterr().err
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)


def test_an_interrupted_compilation_ends_its_processes(tmp_path: Path, cache: Path, compiler: Make) -> None:
    compiler("sleep 60 & echo $! >> {folder}/calls; wait".replace("{folder}", str(tmp_path)))
    child = forked(build.compiled)
    while len(calls(tmp_path)) < 2:
        time.sleep(0.02)
    os.kill(child, signal.SIGINT)
    os.waitpid(child, 0)
    for started in calls(tmp_path):
        while Path(f"/proc/{started}/stat").exists() and ") Z " not in Path(f"/proc/{started}/stat").read_text():
            time.sleep(0.02)
    assert not list(cache.glob("._sdaa-*"))


def test_an_error_is_its_first_line_and_the_log(
    tmp_path: Path, cache: Path, compiler: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler("i=0; while [ $i -lt 500 ]; do echo note; i=$((i + 1)); done; echo 'a.h:3:1: error: no X'; exit 3")
    log = cache / f"_sdaa-{build.key()}.log"
    with pytest.raises(BuildError) as raised:
        build.compiled()
    by = f" by CXX='{tmp_path / 'compiler'}'"
    line = f"the extension does not compile{by} with torch: a.h:3:1: error: no X (all messages: {log})"
    assert str(raised.value) == line
    assert len(log.read_text().splitlines()) == 501
    monkeypatch.setattr(build, "TESTED", ("9.8", "9.9"))
    monkeypatch.setenv("CXX", "/bin/false")
    capsys.readouterr()
    with pytest.raises(BuildError, match=r"torch \S+; .*9\.8, 9\.9: .*code"):
        build.compiled()
    assert "(tested with 9.8, 9.9), this once" in capsys.readouterr().err
    compiler()
    assert build.compiled().is_file()
    assert not log.exists()


def test_an_unloadable_file_is_compiled_again_and_then_reported(tmp_path: Path, compiler: Make) -> None:
    with pytest.raises(BuildError, match=r"_sdaa-\w+\.so: .*TECO_CACHE_DIR"):
        build.load()
    assert len(calls(tmp_path)) == 2


def test_only_the_files_used_last_are_kept(cache: Path, compiler: Make) -> None:
    cache.mkdir(parents=True)
    for age in range(20):
        path = cache / f"_sdaa-{age:020}.so"
        path.touch()
        path.with_suffix(".log").touch()
        os.utime(path, (time.time() - age * 90000,) * 2)
    build.compiled()
    kept = {f"_sdaa-{age:020}" for age in range(build.KEPT - 1)} | {f"_sdaa-{build.key()}"}
    assert {path.stem for path in cache.glob("*.so")} == kept
    used = cache / f"_sdaa-{build.key()}.so"
    os.utime(used, (0, 0))
    build.compiled()
    assert time.time() - used.stat().st_mtime < 3600


def test_the_name_depends_on_the_compiled_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(build.SOURCES, tmp_path / "csrc")
    keys = [build.key()]
    monkeypatch.setattr(build, "SOURCES", tmp_path / "csrc")
    assert build.key() == keys[0]
    (tmp_path / "csrc" / "notes.txt").touch()
    assert build.key() == keys[0]
    (tmp_path / "csrc" / "sdaa.cpp").write_text("//")
    keys.append(build.key())
    monkeypatch.setattr(build.torch, "__version__", "9.9")
    keys.append(build.key())
    monkeypatch.setenv("TECO_SDAA_CXXFLAGS", "-O1 -g")
    keys.append(build.key())
    assert len(set(keys)) == 4
    assert build.flags()[-2:] == ["-O1", "-g"]


def test_a_terminal_shows_the_seconds_and_a_file_one_line(
    compiler: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build.compiled().unlink()
    assert capsys.readouterr().err.splitlines() == [
        f"torch_sdaa: compiling the extension for torch {build.torch.__version__}, this once; "
        "this takes about 45 s on one core"
    ]
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal, os.fdopen(reader, "rb") as shown:
        monkeypatch.setattr(sys, "stderr", terminal)
        build.compiled()
        monkeypatch.undo()
        said = shown.read1().decode()
    assert said.startswith("\rtorch_sdaa: compiling the extension for torch ")
    assert said.endswith(": 0 s\r\n")


@pytest.mark.slow
@pytest.mark.long
def test_a_fresh_compilation_computes(tmp_path: Path) -> None:
    code = "import torch, torch_sdaa; print(float(torch.ones(3, device='sdaa').sum()))"
    env = {**os.environ, "TECO_CACHE_DIR": str(tmp_path)}
    for compiles in (True, False):
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert (done.stdout, "compiling" in done.stderr) == ("3.0\n", compiles)
