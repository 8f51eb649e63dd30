"""Unpacking of zip, tar and Debian archives; hostile and damaged archives raise one line and write nothing outside."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from shutil import which

import pytest
from fetch_archives import FILES, MEMBERS, UNPACKED, ar, deb, row, sdist, tar, tar_bytes, wheel
from hypothesis import given, strategies as st

from utils.fetch import FetchError, Package
from utils.fetch.unpack import matches, unpack


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpacked(archive: Path, package: Package) -> dict[str, bytes]:
    folder = archive.parent / "files"
    folder.mkdir()
    sizes = unpack(archive, package, folder)
    found = content(folder)
    assert sizes == {name: len(value) for name, value in found.items()}
    return found


def error_of(archive: Path, package: Package) -> str:
    folder = archive.parent / "place" / "files"
    folder.mkdir(parents=True)
    before = content(archive.parent)
    with pytest.raises(FetchError) as error:
        unpack(archive, package, folder)
    outside = {name for name in content(archive.parent) if not name.startswith("place/files/")}
    assert outside == set(before), "something was written outside"
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"mine ({package.registry} mine 1.0): ")
    return str(error.value)


WANTED = {name: value for name, value in FILES.items() if "model" in name}


def test_a_wheel(tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    assert unpacked(archive, row(archive)) == WANTED


def test_an_sdist(tmp_path: Path) -> None:
    archive = sdist(tmp_path)
    found = unpacked(archive, row(archive, kind="sdist", members=("mine-1.0/mine/model/**",)))
    assert found == {f"mine-1.0/{name}": value for name, value in WANTED.items()}


@pytest.mark.parametrize("mode", ["", ":gz", ":bz2", ":xz"])
def test_a_debian_package(mode: str, tmp_path: Path) -> None:
    archive = deb(tmp_path, tar_bytes(FILES, "./", f"w{mode}"), mode.replace(":", "."))
    assert unpacked(archive, row(archive, "debian", "deb")) == WANTED


@pytest.mark.skipif(which("zstd") is None, reason="no program zstd")
def test_a_debian_package_in_zstd(tmp_path: Path) -> None:
    data = subprocess.run(
        [which("zstd"), "-q", "-c"], input=tar_bytes(FILES, "./", "w"), capture_output=True, check=True
    ).stdout
    archive = deb(tmp_path, data, ".zst")
    assert unpacked(archive, row(archive, "debian", "deb")) == WANTED
    cut = deb(tmp_path, data[: len(data) // 2], ".zst")
    shutil.rmtree(tmp_path / "files")
    assert "is damaged" in error_of(cut, row(cut, "debian", "deb"))


def test_missing_zstd_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    archive = deb(tmp_path, b"whatever", ".zst")
    assert "apt-get install zstd" in error_of(archive, row(archive, "debian", "deb"))


@pytest.mark.skipif(which("dpkg-deb") is None, reason="no dpkg-deb")
def test_package_built_by_dpkg(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, value in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(value)
    (tree / "DEBIAN").mkdir()
    about = "Package: mine\nVersion: 1.0\nArchitecture: all\nMaintainer: me <me@localhost>\nDescription: test\n"
    (tree / "DEBIAN" / "control").write_text(about)
    archive = tmp_path / "mine_1.0_all.deb"
    subprocess.run([which("dpkg-deb"), "--build", str(tree), str(archive)], capture_output=True, check=True)
    assert unpacked(archive, row(archive, "debian", "deb")) == WANTED


def test_an_archive_in_the_archive(tmp_path: Path) -> None:
    inner = tar_bytes({"data/x.txt": b"inner", "data/y.txt": b"not asked for"})
    archive = tar(tmp_path / "mine-1.0.tar.gz", {"mine/more.tar.gz": inner, "mine/LICENSE": b"free"})
    members = ("mine/more.tar.gz/data/x*", "mine/LICENSE")
    found = unpacked(archive, row(archive, kind="sdist", members=members, unpacked=9))
    assert found == {"mine/more.tar.gz/data/x.txt": b"inner", "mine/LICENSE": b"free"}


@pytest.mark.parametrize("name", ["../evil", "/var/evil", "mine/model/../../../evil", "mine\\model\\evil", "C:/evil"])
@pytest.mark.parametrize("make", [wheel, lambda folder, files: tar(folder / "mine-1.0.tar.gz", files)])
def test_path_outside_the_folder_raises(name: str, make: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    archive = make(tmp_path / "a", {"mine/model/good": b"x", name: b"evil"})
    if make is wheel:  # zipfile itself turns a backslash into a slash
        replace_name(archive, name)
    package = row(archive, kind="wheel" if make is wheel else "sdist", members=("**",))
    assert repr(name) in error_of(archive, package)


def replace_name(archive: Path, name: str) -> None:
    raw = archive.read_bytes()
    archive.write_bytes(raw.replace(name.replace("\\", "/").encode(), name.encode()))


def test_links_raise(tmp_path: Path) -> None:
    for number, kind in enumerate([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]):
        place = tmp_path / str(number)
        place.mkdir()
        archive = place / "mine-1.0.tar.gz"
        with tarfile.open(archive, "w:gz") as file:
            entry = tarfile.TarInfo("mine/model/link")
            entry.type, entry.linkname = kind, "/etc/passwd"
            file.addfile(entry)
            inside = tarfile.TarInfo("mine/model/link/x")
            inside.size = 4
            file.addfile(inside, io.BytesIO(b"evil"))
        assert "'mine/model/link' is a link or a special file" in error_of(archive, row(archive, kind="sdist"))


def test_link_in_a_wheel_raises(tmp_path: Path) -> None:
    archive = tmp_path / "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as file:
        entry = zipfile.ZipInfo("mine/model/link")
        entry.external_attr = 0o120777 << 16
        file.writestr(entry, "/etc/passwd")
    assert "is a link or a special file" in error_of(archive, row(archive))


def test_unwanted_link_is_ignored(tmp_path: Path) -> None:
    archive = tmp_path / "mine-1.0.tar.gz"
    archive.write_bytes(tar_bytes(WANTED))
    with tarfile.open(tmp_path / "two.tar", "w") as file:
        entry = tarfile.TarInfo("elsewhere/link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
        file.addfile(entry)
        for name, value in WANTED.items():
            one = tarfile.TarInfo(name)
            one.size = len(value)
            file.addfile(one, io.BytesIO(value))
    two = tmp_path / "two.tar"
    assert unpacked(two, row(two, kind="sdist")) == WANTED


def test_more_bytes_than_the_row_raises(tmp_path: Path) -> None:
    archive = wheel(tmp_path, {"mine/model/a.bin": bytes(50_000_000)})
    assert archive.stat().st_size < 100_000
    text = error_of(archive, row(archive, unpacked=1000))
    assert "1000 bytes; correct unpacked or members in mine.yaml:1" in text
    written = sum(path.stat().st_size for path in (tmp_path / "place").rglob("*") if path.is_file())
    assert written <= 1000


def test_unwanted_bomb_raises(tmp_path: Path) -> None:
    """Skipped members are not written, and their size is limited."""
    archive = tar(tmp_path / "mine-1.0.tar.xz", {"bomb": bytes(30_000_000), **WANTED}, mode="w:xz")
    assert archive.stat().st_size < 20_000
    text = error_of(archive, row(archive, kind="sdist"))
    assert "unpacks to more than" in text
    assert content(tmp_path / "place") == {}


def test_a_bomb_in_the_archive(tmp_path: Path) -> None:
    inner = tar_bytes({"x": bytes(30_000_000)}, mode="w:xz")
    archive = tar(tmp_path / "mine-1.0.tar.gz", {"in.tar.xz": inner})
    assert "have more than 10 bytes" in error_of(
        archive, row(archive, kind="sdist", members=("in.tar.xz/x",), unpacked=10)
    )


def test_duplicate_member_raises(tmp_path: Path) -> None:
    archive = tmp_path / "mine-1.0.tar"
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as file:
        for value in (b"good", b"evil"):
            one = tarfile.TarInfo("mine/model/a")
            one.size = 4
            file.addfile(one, io.BytesIO(value))
    archive.write_bytes(text.getvalue())
    assert "occurs twice in the archive" in error_of(archive, row(archive, kind="sdist", unpacked=8))


def test_file_in_place_of_a_folder_raises(tmp_path: Path) -> None:
    archive = tar(tmp_path / "mine-1.0.tar.gz", {"mine/model/a": b"x", "mine/model/a/b": b"y"})
    assert "cannot be written" in error_of(archive, row(archive, kind="sdist", unpacked=2))


def test_missing_member_raises(tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    text = error_of(archive, row(archive, members=(*MEMBERS, "mine/nope/*.onnx")))
    assert text.endswith("'mine/nope/*.onnx'; correct members in mine.yaml:1")


def test_fewer_bytes_than_the_row_raises(tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    assert f"{UNPACKED} bytes, not 4000; correct unpacked" in error_of(archive, row(archive, unpacked=4000))


def test_encrypted_archive_raises(tmp_path: Path) -> None:
    archive = wheel(tmp_path)
    raw = bytearray(archive.read_bytes())
    for mark, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of a local and of a central header
        at = raw.find(mark)
        while at >= 0:
            raw[at + flag] |= 1
            at = raw.find(mark, at + 4)
    archive.write_bytes(raw)
    assert "damaged" in error_of(archive, row(archive))


@pytest.mark.parametrize("parts", [{}, {"control.tar": b"x"}])
def test_ar_archives_without_data(parts: dict[str, bytes], tmp_path: Path) -> None:
    archive = tmp_path / "mine_1.0_all.deb"
    archive.write_bytes(ar(parts))
    assert "ar archive" in error_of(archive, row(archive, "debian", "deb"))


@given(cut=st.floats(0, 1), kind=st.sampled_from(["wheel", "sdist", "deb"]), flip=st.booleans())
def test_damaged_archives_are_one_line(cut: float, kind: str, flip: bool) -> None:
    """Truncated or with a changed byte: the right files (if the damage is not read), or a one-line error."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        archive = {"wheel": wheel, "sdist": sdist, "deb": deb}[kind](place)
        raw = bytearray(archive.read_bytes())
        at = min(int(cut * len(raw)), len(raw) - 1)
        if flip:
            raw[at] ^= 0x55
        archive.write_bytes(raw if flip else raw[:at])
        members = ("mine-1.0/mine/model/**",) if kind == "sdist" else MEMBERS
        package = row(archive, "debian" if kind == "deb" else "pip", kind, members=members)
        (place / "files").mkdir()
        try:
            sizes = unpack(archive, package, place / "files")
        except FetchError as error:
            text, found = str(error), UNPACKED
        else:
            text, found = "", sum(sizes.values())
        assert (text.count("\n"), found) == (0, UNPACKED)


PART = st.text("ab.", min_size=1, max_size=3)
PATH = st.lists(PART, min_size=1, max_size=4)


@given(path=PATH, data=st.data())
def test_patterns(path: list[str], data: st.DataObject) -> None:
    assert matches(path, path)
    assert matches(path, ["**"])
    assert matches(path, ["*"] * len(path))
    assert not matches(path, ["*"] * (len(path) + 1))
    start = data.draw(st.integers(0, len(path)))
    end = data.draw(st.integers(start, len(path)))
    assert matches(path, [*path[:start], "**", *path[end:]])
    assert not matches(path, [*path, "c"])
    assert not matches(path, ["c", "**"])
