"""Invalid answers of registries: a one-line error with the URL, in bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fetch_archives import row, sdist

from utils.fetch import FetchError, UnreachableError, fetched, kept, simple_index, unpack, web
from utils.fetch.download import _growth
from utils.fetch.simple_index import PipSettings, _is_wanted, _parsed
from utils.fetch.web import Access, shown

BASE = "https://example.org/simple/mine/"


@pytest.mark.parametrize("text", ["<![", '{"files": ' + "[" * 100_000, "{", '{"files": [{}]}', '{"files": 5}'])
def test_invalid_page_raises(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def feed(*given: object) -> None:
        raise AssertionError("as in older parsers")

    monkeypatch.setattr(simple_index._Page, "feed", feed)
    with pytest.raises(UnreachableError, match=r"https://example\.org/simple/mine/: is not an index"):
        list(_parsed(text, BASE))


def test_invalid_urls_are_skipped(tmp_path: Path) -> None:
    page = '<base href="//["><a href="http://[bad">x</a><a href="mine-1.0.tar.gz">y</a>'
    package = row(sdist(tmp_path), kind="sdist")
    (link,) = [one for one in _parsed(page, BASE) if _is_wanted(one, package)]
    assert link.url == f"{BASE}mine-1.0.tar.gz"
    odd = '{"files": [{"filename": 5, "url": "x", "hashes": {"sha256": 5}}]}'
    assert not [one for one in _parsed(odd, BASE) if _is_wanted(one, package)]
    assert shown("http://[bad") == "http://[bad"
    with pytest.raises(UnreachableError, match=r"http://\[bad"):
        Access().page("http://[bad")


def test_html_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple_index, "_MOST_HTML", 10)
    with pytest.raises(UnreachableError, match="more than 10 characters"):
        list(_parsed("<" * 11, BASE))


class _Drips:
    """An answer of one byte per second of a fake clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def read1(self, _: int) -> bytes:
        self.now += 1
        return b"x"


def test_slow_server_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _Drips()

    @contextmanager
    def opened(*_: Any) -> Iterator[_Drips]:
        yield answer

    monkeypatch.setattr(web, "time", answer)
    monkeypatch.setattr(Access, "_open", opened)
    with pytest.raises(UnreachableError, match=r"https://example\.org/x: too slow, 15 bytes"):
        Access().save("https://example.org/x", tmp_path / "x", 10**6)


@pytest.mark.parametrize(
    "output", [b"global.index-url='\xff'\nglobal.x='\\'\n", subprocess.TimeoutExpired("pip", 1), OSError(2, "x")]
)
def test_invalid_pip_config(output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        if isinstance(output, Exception):
            raise output
        return subprocess.CompletedProcess([], 0, output)

    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setattr(simple_index.subprocess, "run", run)
    assert PipSettings.read().indexes in ([simple_index.PYPI], ["\ufffd"])


def test_stalled_client_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utils.fetch.download.STALLED", 0.0)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert list(_growth(process, tmp_path, 10**6)) == []
    assert process.returncode < 0


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MOST_FILES", 1)
    archive = sdist(tmp_path)
    (tmp_path / "files").mkdir()
    with pytest.raises(FetchError, match="more than 1 members"):
        unpack.unpack(archive, row(archive, kind="sdist", members=("mine-1.0/mine/model/**",)), tmp_path / "files")


def test_pipe_in_place_of_the_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))
    archive = sdist(tmp_path)
    package = row(archive, kind="sdist", members=("mine-1.0/mine/model/**",))
    (tmp_path / "kept" / "mine").mkdir(parents=True)
    os.mkfifo(tmp_path / "kept" / "mine" / f"{package.key}.sizes.json")
    assert kept(package) is None
    assert fetched(package, archive) == kept(package)
