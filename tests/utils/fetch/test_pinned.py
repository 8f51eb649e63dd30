"""A row of the table of packages, made from a wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fetch_archives import FILES, wheel

from engine import ConfigError
from utils.fetch import FetchError, packages, read_contrib
from utils.fetch.pinned import described, written_row
from utils.fetch.table import read_table
from utils.fetch.unpack import unpack

MEMBER = "mine/model/a.bin"
ABOUT = "mine-1.0.dist-info"


def made(folder: Path, metadata: str = "License-Expression: MIT\nSummary: A summary\nAuthor: Ada") -> Path:
    head = "Metadata-Version: 2.4\nName: mine\nVersion: 1.0\n"
    licence = {f"{ABOUT}/licenses/LICENSE": b"the terms"}
    archive = wheel(folder, {**FILES, **licence}, "mine-1.0-py3-none-any.whl")
    import zipfile

    with zipfile.ZipFile(archive) as old:
        content = {name: old.read(name) for name in old.namelist() if not name.endswith("METADATA")}
    with zipfile.ZipFile(archive, "w") as new:
        for name, data in {**content, f"{ABOUT}/METADATA": f"{head}{metadata}\n".encode()}.items():
            new.writestr(name, data)
    return archive


def test_a_row_is_read_again_and_unpacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = made(tmp_path)
    row = described(archive, "mine_1_0", "mine", "1.0", MEMBER)
    assert (row.licence, row.attribution) == ("MIT", "Ada")
    assert row.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert row.members == (MEMBER, f"{ABOUT}/METADATA", f"{ABOUT}/licenses/LICENSE")
    (tmp_path / "contrib/utils/fetch").mkdir(parents=True)
    file = written_row(row, tmp_path, contrib=True)
    (again,) = read_table(file)
    assert {**again.as_json} == {**row.as_json}
    (tmp_path / "files").mkdir()
    assert sum(unpack(archive, again, tmp_path / "files").values()) == row.unpacked
    (tmp_path / "contrib/utils/fetch/__init__.py").touch()
    read_contrib(tmp_path)
    assert packages()["mine_1_0"].package == "mine"
    file.unlink()


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License: BSD", "BSD"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT License"),
        ("Summary: none", "none stated"),
    ],
)
def test_licences(metadata: str, licence: str, tmp_path: Path) -> None:
    assert described(made(tmp_path, metadata), "m", "mine", "1.0", MEMBER).licence == licence


def test_refused(tmp_path: Path) -> None:
    archive = made(tmp_path)
    with pytest.raises(FetchError, match="did you mean"):
        described(archive, "m", "mine", "1.0", "mine/model/b.bin")
    (tmp_path / "bad.whl").write_bytes(b"no zip")
    with pytest.raises(FetchError, match="is not a wheel"):
        described(tmp_path / "bad.whl", "m", "mine", "1.0", MEMBER)
    with pytest.raises(ConfigError, match="cannot be written"):
        written_row(described(archive, "m_1", "mine", "1.0", MEMBER), tmp_path / "nowhere", contrib=False)
