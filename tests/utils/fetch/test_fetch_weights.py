"""Weights that an export script downloads if they are missing: by size and hash, and one line if that fails."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fetch_archives import serving

from tecoinfer_modelzoo.cache import cache_folder
from utils.fetch import FetchError, UnreachableError, downloading
from utils.fetch.weights import keep_weights, url_problem

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a cache of this test's own, and no flags of a script."""
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.argv", ["export_onnx.py"])


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
    (tmp_path / "other").mkdir()
    copy = tmp_path / "other" / "w.onnx"
    assert downloading(lambda: copy.stat().st_size, copy, "", len(CONTENT), SHA256)() == len(CONTENT)  # of the cache
    file.write_bytes(b"edited")  # what is there is used
    assert main() == len(b"edited")


@pytest.mark.parametrize(
    ("name", "size", "sha256", "message"),
    [
        ("w.onnx", len(CONTENT), "0" * 64, "has another file: its SHA-256 is "),
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


def test_without_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "w.onnx"
    main = downloading(lambda: 7, file, "", len(CONTENT), SHA256)
    with pytest.raises(FetchError, match=r"w\.onnx is missing, and where it is downloaded is not known; get w\.onnx"):
        main()
    for words in (["--weights", "other.onnx"], ["--weights=other.onnx"]):
        monkeypatch.setattr("sys.argv", ["export_onnx.py", *words])
        assert main() == 7
    monkeypatch.setattr("sys.argv", ["export_onnx.py", "--weights", str(file)])
    with pytest.raises(FetchError, match="is missing"):
        main()


def test_a_damaged_file_of_the_cache_is_not_used(served: Path, tmp_path: Path) -> None:
    keep_weights(served / "w.onnx")
    folder = cache_folder("weights")
    assert folder is not None
    (folder / SHA256).write_bytes(b"damaged")
    with pytest.raises(FetchError, match="is missing"):
        downloading(lambda: 0, tmp_path / "w.onnx", "", len(CONTENT), SHA256)()


def test_problem_of_a_url(served: Path) -> None:
    with serving(served) as server:
        assert url_problem(f"{server.url}/w.onnx", len(CONTENT), SHA256) == ""
        assert "404" in url_problem(f"{server.url}/v.onnx", len(CONTENT), SHA256)
        assert "another file" in url_problem(f"{server.url}/w.onnx", len(CONTENT), "0" * 64)


def test_no_network(tmp_path: Path) -> None:
    file = tmp_path / "w.onnx"
    with pytest.raises(UnreachableError, match=r"w\.onnx is missing and cannot be downloaded \(http://127\.0\.0\.1:9/"):
        downloading(lambda: 0, file, "http://127.0.0.1:9/w.onnx", 1, SHA256)()
