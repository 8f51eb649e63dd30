"""Cache entries that are damaged, modified or not regular files."""

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
        os.chdir(path.parent)  # a socket's path is limited to 108 bytes
        try:
            end.bind(path.name)
        finally:
            os.chdir(place)


def itself(path: Path) -> None:
    path.symlink_to(path.name)


SPECIAL_FILES = [pipe, device, bound, Path.mkdir, itself]


@pytest.mark.parametrize("make", SPECIAL_FILES)
def test_special_files_are_not_read(make: Callable[[Path], None], cache: Path) -> None:
    path = cache / "kind" / "a.json"
    path.parent.mkdir()
    make(path)
    assert read_entry("kind", "a") is None
    assert not is_built(path)
    for read in (open_regular, hash_files, lambda file: read_regular(file, 9)):
        with pytest.raises(OSError):  # noqa: PT011 - several subclasses
            read(path)
    with pytest.raises(ModelError, match="cannot be read"):
        read_saved(path.rename(path.with_name("m.tecoengine")))


@pytest.mark.parametrize("make", SPECIAL_FILES)
def test_a_special_lock_file_is_ignored(make: Callable[[Path], None], cache: Path) -> None:
    (cache / "kind").mkdir()
    make(cache / "kind" / ".lock")
    with exclusive("kind"):
        write_entry("kind", "a", {"b": 1})
    assert read_entry("kind", "a") == {"b": 1}


def test_a_linked_lock_file_leaves_its_target_unchanged(cache: Path) -> None:
    (cache / "kind").mkdir()
    (cache / "mine.txt").write_text("kept")
    (cache / "kind" / ".lock").symlink_to(cache / "mine.txt")
    with exclusive("kind"):
        pass
    assert (cache / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'"x"', b"3", b"\xff", b"[" * 100_000, b'{"b": 1}', b"{}"])
def test_an_invalid_entry_is_ignored(content: bytes, cache: Path) -> None:
    write_entry("kind", "a", {"b": 1})
    (cache / "kind" / "a.json").write_bytes(content)
    assert read_entry("kind", "a") is None


def test_a_changed_number_invalidates_the_entry(cache: Path) -> None:
    write_entry("kind", "a", {"seconds": 0.25, "more": {"x": [1, "é"]}})
    path = cache / "kind" / "a.json"
    assert read_entry("kind", "a") == {"seconds": 0.25, "more": {"x": [1, "é"]}}
    path.write_text(path.read_text().replace("0.25", "0.35"))
    assert read_entry("kind", "a") is None


def test_an_oversized_entry_is_ignored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tecoinfer_modelzoo.cache.MOST_BYTES", 100)
    write_entry("kind", "a", {"b": "x" * 100})
    assert read_entry("kind", "a") is None


@pytest.mark.parametrize("make", [pipe, device, itself, Path.touch])
def test_an_invalid_folder_disables_the_cache(make: Callable[[Path], None], cache: Path) -> None:
    make(cache / "kind")
    with exclusive("kind"):
        write_entry("kind", "a", {})
    assert (write_cached("kind", "b", b""), read_entry("kind", "a")) == (None, None)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "9" * 5000, "[" * 100_000, ""])
def test_invalid_json_raises(text: str) -> None:
    with pytest.raises(Problems):
        parsed(text)
    assert parsed(json.dumps({"a": [1.5]})) == {"a": [1.5]}
