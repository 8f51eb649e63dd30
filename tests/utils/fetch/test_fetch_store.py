"""Cache of package files: complete or absent, locked per package, usable offline."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fetch_archives import FILES, row, serving, simple_page, wheel
from support import ROOT

from utils.fetch import FetchError, Package, fetched, kept, remove
from utils.fetch.store import fetch_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return tmp_path / "kept" / "mine"


def names(home: Path) -> set[str]:
    return {path.name for path in home.iterdir()} - {".lock"}


def test_fetch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TECO_FETCH_DIR")
    assert fetch_folder() == Path(os.environ["TECO_CACHE_DIR"]) / "fetch"
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path))
    assert fetch_folder() == tmp_path


def test_local_archive(home: Path, tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    package = row(archive)
    assert kept(package) is None
    folder = fetched(package, archive)
    assert folder == kept(package) == fetched(package) == home / package.key
    assert names(home) == {package.key, f"{package.key}.sizes.json"}
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == {
        "mine/model/a.bin",
        "mine/model/deep/b.txt",
    }


def test_local_archive_with_any_name(home: Path, tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    package = row(archive)
    assert fetched(package, archive.rename(tmp_path / "download (1)")) == home / package.key


def test_wrong_local_archive_raises(home: Path, tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    package = row(archive)
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(FetchError, match=r"sha256 \w+, not \w+; .*--from"):
        fetched(package, archive)
    with pytest.raises(FetchError, match=r"gone .*\(No such file or directory\).*--from"):
        fetched(package, tmp_path / "gone")
    with pytest.raises(FetchError, match="check --from"):
        fetched(package, tmp_path)
    assert names(home) == set()


def test_damaged_files_are_replaced(home: Path, tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    package = row(archive)
    folder = fetched(package, archive)
    (folder / "mine/model/a.bin").write_bytes(b"short")
    assert kept(package) is None
    assert (fetched(package, archive) / "mine/model/a.bin").read_bytes() == FILES["mine/model/a.bin"]
    (home / f"{package.key}.sizes.json").write_text("[]")
    assert kept(package) is None
    shutil.rmtree(folder)
    assert fetched(package, archive) == kept(package)


def test_other_members_are_another_folder(home: Path, tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    one, two = row(archive), row(archive, members=("mine/model/a*",), unpacked=3000)
    assert fetched(one, archive) != fetched(two, archive)
    assert remove(one) > 6000
    assert (kept(one), kept(two), names(home)) == (None, None, set())
    assert remove(one) == 0


def test_remove_does_not_follow_links(home: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    home.mkdir(parents=True)
    archive = wheel(tmp_path)
    (home / row(archive).key).symlink_to(tmp_path / "precious")
    remove(row(archive))
    assert names(home) == set()
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.parametrize("linked", [True, False])
def test_remove_keeps_other_files(linked: bool, home: Path, tmp_path: Path) -> None:
    """The folder may be a link, or a folder of the user with the name of a package."""
    own = tmp_path / "own" if linked else home
    own.mkdir(parents=True)
    if linked:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.symlink_to(own)
    (own / "thesis-2.0").mkdir()
    for name in ("precious", "thesis-2.0/text"):
        (own / name).write_text("mine")
    package = row(wheel(tmp_path))
    assert fetched(package, wheel(tmp_path)) == kept(package)
    assert remove(package) > 3000
    assert kept(package) is None
    assert {"precious", "thesis-2.0"} == {path.name for path in own.iterdir()} - {".lock"}
    assert (own / "thesis-2.0" / "text").read_text() == "mine"


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from fetch_archives import row
from utils.fetch import FetchError, fetched
import engine
try:
    print(fetched(row(Path({archive!r})), Path({given!r}) if {given!r} else None))
except engine.TecoInferError as error:
    print("error:", error)
"""


def child(archive: Path, given: Path | str = "") -> list[str]:
    code = CHILD.format(root=str(ROOT), tests=str(ROOT / "tests" / "helpers"), archive=str(archive), given=str(given))
    return [sys.executable, "-W", "error", "-c", code]


def test_two_processes_at_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process downloads; the others wait and use its files."""
    pages = tmp_path / "pages"
    pages.mkdir()
    archive = wheel(pages)
    simple_page(pages, archive)
    with serving(pages) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        running = [subprocess.Popen(child(archive), stdout=subprocess.PIPE, text=True) for _ in range(3)]
        outs = [process.communicate(timeout=120)[0].strip() for process in running]
        downloads = [path for path in server.asked if path.endswith(".whl")]
    package = row(archive)
    assert outs == [str(home / package.key)] * 3
    assert len(downloads) == 1
    assert names(home) == {package.key, f"{package.key}.sizes.json"}


@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download(ended: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves nothing; files of a killed process are ignored, and removed by the next fetch."""
    archive = wheel(tmp_path)
    answers = threading.Event()  # blocks the index
    with serving(tmp_path, answers) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        process = subprocess.Popen(child(archive), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not server.asked:
            time.sleep(0.02)
        process.send_signal(ended)
        process.wait(60)
        answers.set()
    assert (names(home) == set()) is (ended == signal.SIGINT)
    package = row(archive)
    assert kept(package) is None
    assert fetched(package, archive) == home / package.key
    assert names(home) == {package.key, f"{package.key}.sizes.json"}


def test_full_disk_raises(home: Path, tmp_path: Path) -> None:
    """Simulated by a limit on the file size."""
    archive = wheel(tmp_path, {"mine/model/a.bin": bytes(200_000)})
    code = child(archive, archive)
    code[-1] = code[-1].replace("row(Path", "row(unpacked=200_000, archive=Path")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(code, capture_output=True, text=True, preexec_fn=limit, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith("error: mine (pip mine 1.0): ")
    assert "(File too large)" in done.stdout
    assert "TECO_FETCH_DIR" in done.stdout
    assert done.stdout.count("\n") == 1
    assert names(home) == set()


def test_uncreatable_cache_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(tmp_path)
    monkeypatch.setenv("TECO_FETCH_DIR", str(archive / "kept"))
    with pytest.raises(FetchError, match=r"cannot be written \(Not a directory\).*TECO_FETCH_DIR"):
        fetched(row(archive), archive)
    monkeypatch.delenv("TECO_FETCH_DIR")
    monkeypatch.setenv("TECO_CACHE_DIR", str(archive / "cache"))
    with pytest.raises(FetchError, match=r"cache .*TECO_FETCH_DIR"):
        fetched(row(archive), archive)
    assert kept(row(archive)) is None


@contextmanager
def unprivileged() -> Iterator[Path]:
    """Yield a public folder, in a context without root privileges."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        if root:
            os.chown(name, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)


def test_read_only_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached packages are found, others raise."""
    with unprivileged() as place:
        monkeypatch.setenv("TECO_FETCH_DIR", str(place / "kept"))
        archive = wheel(place)
        there, lacking = row(archive), row(archive, name="other")
        folder = fetched(there, archive)
        (place / "kept").chmod(0o555)
        (place / "kept" / "mine").chmod(0o555)
        assert fetched(there) == folder
        for package in (lacking, more(archive)):
            with pytest.raises(FetchError, match=r"\(Permission denied\).*TECO_FETCH_DIR"):
                fetched(package, archive)
        with pytest.raises(FetchError, match="cannot be written"):
            remove(there)
        (place / "kept").chmod(0o755)
        (place / "kept" / "mine").chmod(0o755)
        assert remove(there) > 0


def more(archive: Path) -> Package:
    return row(archive, members=("mine/**",), unpacked=sum(map(len, FILES.values())))
