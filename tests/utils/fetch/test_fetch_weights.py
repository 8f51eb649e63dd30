"""Weights that an export script downloads if they are missing: by size and hash, and one line if that fails."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fetch_archives import serving

from utils.fetch import FetchError, UnreachableError, downloading

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "w.onnx").write_bytes(CONTENT)
    return tmp_path / "www"


def test_missing_weights_are_downloaded_once(served: Path, tmp_path: Path) -> None:
    file = tmp_path / "model" / "own" / "w.onnx"
    with serving(served) as server:
        main = downloading(lambda: len(file.read_bytes()), file, f"{server.url}/w.onnx", len(CONTENT), SHA256)
        assert main() == len(CONTENT)
        assert main() == len(CONTENT)
        assert server.asked.count("/w.onnx") == 1
    assert [one.name for one in file.parent.iterdir()] == ["w.onnx"]
    file.write_bytes(b"edited")  # what is there is used
    assert main() == len(b"edited")


@pytest.mark.parametrize(
    ("name", "size", "sha256", "message"),
    [
        ("w.onnx", len(CONTENT), "0" * 64, "has another file than w.onnx: its SHA-256 is "),
        ("w.onnx", 10, SHA256, "has more than 10 bytes"),
        ("w.onnx", 10**6, SHA256, "bytes early"),
        ("gone.onnx", len(CONTENT), SHA256, "404"),
    ],
)
def test_another_file_is_refused(name: str, size: int, sha256: str, message: str, served: Path, tmp_path: Path) -> None:
    file = tmp_path / "model" / "w.onnx"
    with serving(served) as server, pytest.raises((FetchError, UnreachableError)) as caught:
        downloading(lambda: 0, file, f"{server.url}/{name}", size, sha256)()
    assert message in str(caught.value)
    assert f"get w.onnx elsewhere, and put it into {file.parent}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(file.parent.iterdir()) == []


def test_no_network(tmp_path: Path) -> None:
    file = tmp_path / "w.onnx"
    with pytest.raises(UnreachableError, match=r"w\.onnx is missing and cannot be downloaded \(http://127\.0\.0\.1:9/"):
        downloading(lambda: 0, file, "http://127.0.0.1:9/w.onnx", 1, SHA256)()
