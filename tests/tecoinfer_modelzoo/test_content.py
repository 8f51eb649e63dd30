"""Cached file hashes are invalidated by changes of the file."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tecoinfer_modelzoo import content
from tecoinfer_modelzoo.content import content_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(content, "_cached", {})
    return tmp_path / "cache"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with every hashed file."""
    done: list[int] = []
    hashing = content._read
    monkeypatch.setattr(content, "_read", lambda *args: done.append(1) or hashing(*args))
    return done


def test_a_recently_changed_file_is_hashed_each_time(tmp_path: Path, read: list[int]) -> None:
    """Its times may equal those of another change within the resolution of the kernel's clock."""
    file = tmp_path / "f"
    for text in (b"aaaa", b"bbbb", b"cccc"):
        before = file.stat() if file.exists() else None
        with file.open("r+b" if before else "wb") as opened:
            opened.write(text)
        if before:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert content_of(file).sha256 == sha256(text).hexdigest()
    assert len(read) == 3


def test_a_settled_file_is_hashed_once(tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "SETTLED", -(10**12))
    file = tmp_path / "f"
    file.write_bytes(b"aaaa")
    assert content_of(file) == content_of(file)
    assert len(read) == 1
    before = file.stat()
    other = tmp_path / "g"
    other.write_bytes(b"bbbb")
    other.replace(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_of(file).sha256 == sha256(b"bbbb").hexdigest()
    assert len(read) == 2


def test_a_large_files_hash_is_kept_between_processes(
    tmp_path: Path, read: list[int], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "SETTLED", -(10**12))
    monkeypatch.setattr(content, "KEPT_BYTES", 4)
    file = tmp_path / "f"
    file.write_bytes(b"aaaa location")
    first = content_of(file, b"location")
    content._cached.clear()
    assert content_of(file, b"location") == first
    assert first.found
    assert len(read) == 1
    for entry in (cache / "hashes").iterdir():
        entry.write_text('{"sha256": "00", "found": 1}')
    content._cached.clear()
    assert content_of(file, b"location") == first
    assert len(read) == 2


def test_a_text_is_found_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_CHUNK", 5)
    file = tmp_path / "f"
    for before in range(12):
        file.write_bytes(b"x" * before + b"location" + b"x")
        assert content_of(file, b"location").found
    file.write_bytes(b"locatio" * 9)
    assert not content_of(file, b"location").found


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, hashing, left = tmp_path / "f", content._read, [b"bbbbb"]
    file.write_bytes(b"aaaa")

    def changed(*args: object) -> tuple[str, bool]:
        found = hashing(*args)  # type: ignore[arg-type]
        if left:
            file.write_bytes(left.pop())
        return found

    monkeypatch.setattr(content, "_read", changed)
    assert content_of(file).sha256 == sha256(b"bbbbb").hexdigest()
    left += [b"c" * size for size in range(1, 9)]
    with pytest.raises(OSError, match="/f changed"):
        content_of(file)
