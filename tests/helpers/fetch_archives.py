"""Test archives of the three registries, and a server for them on the loopback."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from utils.fetch import Package

FILES = {"mine/model/a.bin": b"a" * 3000, "mine/model/deep/b.txt": b"words\n", "mine/code.py": b"raise SystemExit\n"}
"""Content of the archives."""

MEMBERS = ("mine/model/**",)
UNPACKED = 3006


def wheel(folder: Path, files: Mapping[str, bytes] = FILES, name: str = "mine-1.0-py3-none-any.whl") -> Path:
    about = {
        "mine-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n",
        "mine-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "mine-1.0.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in {**files, **about}.items():
            archive.writestr(path, content)
    return folder / name


def tar(path: Path, files: Mapping[str, bytes], top: str = "", mode: str = "w:gz") -> Path:
    path.write_bytes(tar_bytes(files, top, mode))
    return path


def tar_bytes(files: Mapping[str, bytes], top: str = "", mode: str = "w:gz") -> bytes:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{top}{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return text.getvalue()


def sdist(folder: Path, code: bytes = b"raise SystemExit('it has run')\n") -> Path:
    """Make an sdist with this code in setup.py."""
    project = b'[build-system]\nrequires = []\nbuild-backend = "build_mine"\nbackend-path = ["."]\n'
    files = {"setup.py": code, "build_mine.py": code, "pyproject.toml": project, "PKG-INFO": b"Name: mine\n"}
    return tar(folder / "mine-1.0.tar.gz", {**files, **FILES}, "mine-1.0/")


def ar(parts: Mapping[str, bytes]) -> bytes:
    found = b"!<arch>\n"
    for name, content in parts.items():
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        found += content + b"\n" * (len(content) % 2)
    return found


def deb(folder: Path, data: bytes | None = None, suffix: str = ".xz") -> Path:
    content = tar_bytes(FILES, "./", "w:xz") if data is None else data
    path = folder / "mine_1.0_all.deb"
    path.write_bytes(ar({"debian-binary": b"2.0\n", "control.tar.gz": b"odd", f"data.tar{suffix}": content}))
    return path


def row(archive: Path, registry: str = "pip", kind: str = "wheel", **other: Any) -> Package:
    content = archive.read_bytes()
    given: dict[str, Any] = {
        "name": "mine",
        "what": "test data",
        "registry": registry,
        "kind": kind,
        "package": "mine",
        "version": "1.0",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "members": MEMBERS,
        "unpacked": UNPACKED,
        "licence": "MIT",
        "read_in": "LICENSE",
        "use": "tests",
        "where": "mine.yaml:1",
    }
    return Package(**{**given, **other})


def table_row(package: Package) -> dict[str, Any]:
    """Return a package as a table row."""
    pool = {"pool": package.pool} if package.pool else {}
    return {key: value for key, value in package.as_json.items() if value != ""} | pool


def simple_page(folder: Path, *archives: Path, digest: bool = True) -> None:
    """Write the page of an index with the archives, which are next to its folder."""
    place = folder / "simple" / "mine"
    place.mkdir(parents=True, exist_ok=True)
    lines = []
    for archive in archives:
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        lines.append(f'<a href="../../{archive.name}{f"#sha256={found}" if digest else ""}">{archive.name}</a><br/>')
    (place / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>", encoding="utf-8")


def npm_page(folder: Path, url: str, archive: Path) -> None:
    """Write npm's metadata of ``@of/mine``."""
    digest = hashlib.sha1(archive.read_bytes()).hexdigest()  # noqa: S324 -- npm's own field
    version = {
        "name": "@of/mine",
        "version": "1.0.0",
        "dist": {"tarball": f"{url}/{archive.name}", "shasum": digest},
    }
    page = {"name": "@of/mine", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (folder / "@of").mkdir()
    (folder / "@of" / "mine").write_text(json.dumps(page), encoding="utf-8")


class Server:
    """A server's URL, and the requested paths."""

    def __init__(self, url: str, asked: list[str]) -> None:
        self.url, self.asked = url, asked


@contextmanager
def serving(folder: Path, answers: threading.Event | None = None) -> Iterator[Server]:
    """Serve a folder on the loopback; requests block until the event is set."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if answers is not None:
                answers.wait(60)
            self.path = self.path.replace("%2f", "/").replace("%2F", "/")
            super().do_GET()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{server.server_address[1]}", asked)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
