"""What the zoo keeps for itself: damaged, swapped for things that are no files, and never waited for."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.sdaa import is_built, read_saved
from tecoinfer_modelzoo.cache import exclusive, read_entry, write_cached, write_entry
from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.files import hash_files, open_regular, read_regular
from tecoinfer_modelzoo.json_types import Problems, parsed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path))
    return tmp_path


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        place = os.getcwd()
        os.chdir(path.parent)  # a socket's path may have 108 bytes only
        try:
            end.bind(path.name)
        finally:
            os.chdir(place)


def itself(path: Path) -> None:
    path.symlink_to(path.name)


NO_FILES = [pipe, device, bound, Path.mkdir, itself]


@pytest.mark.parametrize("make", NO_FILES)
def test_what_is_no_file_is_never_read(make: Callable[[Path], None], cache: Path) -> None:
    path = cache / "kind" / "a.json"
    path.parent.mkdir()
    make(path)
    assert read_entry("kind", "a") is None
    assert not is_built(path)
    for read in (open_regular, hash_files, lambda file: read_regular(file, 9)):
        with pytest.raises(OSError):  # noqa: PT011 - of several kinds
            read(path)
    with pytest.raises(ModelError, match="cannot be read"):
        read_saved(path.rename(path.with_name("m.tecoengine")))


@pytest.mark.parametrize("make", NO_FILES)
def test_a_lock_that_is_no_file_locks_nothing(make: Callable[[Path], None], cache: Path) -> None:
    (cache / "kind").mkdir()
    make(cache / "kind" / ".lock")
    with exclusive("kind"):
        write_entry("kind", "a", {"b": 1})
    assert read_entry("kind", "a") == {"b": 1}


def test_a_lock_leaves_what_a_link_leads_to(cache: Path) -> None:
    (cache / "kind").mkdir()
    (cache / "mine.txt").write_text("kept")
    (cache / "kind" / ".lock").symlink_to(cache / "mine.txt")
    with exclusive("kind"):
        pass
    assert (cache / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'"x"', b"3", b"\xff", b"[" * 100_000, b'{"b": 1}', b"{}"])
def test_an_entry_that_is_none_is_not_there(content: bytes, cache: Path) -> None:
    write_entry("kind", "a", {"b": 1})
    (cache / "kind" / "a.json").write_bytes(content)
    assert read_entry("kind", "a") is None


def test_a_changed_number_is_seen(cache: Path) -> None:
    write_entry("kind", "a", {"seconds": 0.25, "more": {"x": [1, "é"]}})
    path = cache / "kind" / "a.json"
    assert read_entry("kind", "a") == {"seconds": 0.25, "more": {"x": [1, "é"]}}
    path.write_text(path.read_text().replace("0.25", "0.35"))
    assert read_entry("kind", "a") is None


def test_an_entry_of_more_than_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tecoinfer_modelzoo.cache.MOST_BYTES", 100)
    write_entry("kind", "a", {"b": "x" * 100})
    assert read_entry("kind", "a") is None


@pytest.mark.parametrize("make", [pipe, device, itself, Path.touch])
def test_a_folder_that_is_none_costs_only_the_time(make: Callable[[Path], None], cache: Path) -> None:
    make(cache / "kind")
    with exclusive("kind"):
        write_entry("kind", "a", {})
    assert (write_cached("kind", "b", b""), read_entry("kind", "a")) == (None, None)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "9" * 5000, "[" * 100_000, ""])
def test_json_that_is_none(text: str) -> None:
    with pytest.raises(Problems):
        parsed(text)
    assert parsed(json.dumps({"a": [1.5]})) == {"a": [1.5]}
