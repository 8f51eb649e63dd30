"""Tables of packages: rows of the core and of contrib, and one-line errors."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fetch_archives import row, table_row, wheel
from support import ROOT, RunPython

from engine import ConfigError
from utils.fetch import find_package, packages
from utils.fetch.table import read_table

CORE = read_table(ROOT / "utils" / "fetch" / "packages.yaml")


def test_rows_of_the_core() -> None:
    assert len(CORE) >= 15
    assert len({package.sha256 for package in CORE}) == len({package.name for package in CORE}) == len(CORE)
    assert [package.name for package in packages().values()][: len(CORE)] == [package.name for package in CORE]
    assert all(package.size <= 100e6 and package.unpacked >= package.size / 3 for package in CORE)


def test_use_of_restrictive_licences() -> None:
    """Files without a licence to redistribute are for run time only."""
    restrictive = {package.name for package in CORE if "run time only" in package.use}
    assert {"orl_faces", "ml_100k"} <= restrictive
    assert all("redistribute" in package.use for package in CORE if package.name not in restrictive)


def test_an_unknown_name() -> None:
    with pytest.raises(ConfigError, match=r"unknown package 'minlm'; did you mean 'minilm'\? packages: minilm, "):
        find_package("minlm")


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    return table_row(row(wheel(tmp_path)))


@pytest.fixture
def errors_of(tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that writes a table and returns its errors without the file name."""

    def errors_of(rows: object) -> list[str]:
        path = tmp_path / "rows.yaml"
        path.write_text(rows if isinstance(rows, str) else yaml.safe_dump(rows, sort_keys=False), encoding="utf-8")
        try:
            read_table(path)
        except ConfigError as error:
            return [line.removeprefix(f"{path}") for line in str(error).splitlines()]
        return []

    return errors_of


def test_a_good_row(good: dict[str, Any], errors_of: Callable[..., list[str]], tmp_path: Path) -> None:
    assert errors_of([good]) == []
    (package,) = read_table(tmp_path / "rows.yaml")
    assert package == row(tmp_path / "mine-1.0-py3-none-any.whl", where=f"{tmp_path / 'rows.yaml'}:1")
    assert errors_of("") == []


MISTAKES = [
    ({"sha256": "abc"}, "sha256 'abc' is invalid; write 64 hexadecimal digits"),
    ({"version": 1.0}, "version 1.0 is not a one-line string; quote it"),
    ({"what": "two\nlines"}, "what 'two\\nlines' is not a one-line string"),
    ({"name": "Mine!"}, "name 'Mine!' is invalid; use lower-case letters"),
    ({"name": "../x"}, "name '../x' is invalid"),
    ({"package": "x y"}, "package 'x y' is invalid"),
    ({"package": "--index-url=https://evil"}, "package '--index-url=https://evil' is invalid"),
    ({"version": "-x"}, "version '-x' is invalid"),
    ({"size": "3 MB"}, "size '3 MB' is not a byte count"),
    ({"unpacked": 0}, "unpacked 0 is not a byte count"),
    ({"size": True}, "size True is not a byte count"),
    ({"registry": "pypi"}, "unknown registry 'pypi'; did you mean 'pip'? registries: pip, npm, debian"),
    ({"registry": ["pip"]}, "registry ['pip'] is not a one-line string"),
    ({"kind": "deb"}, "kind 'deb' is not a kind of pip; use one of: wheel, sdist"),
    ({"pool": "main/m"}, "pool is required for debian and invalid for others; leave it out"),
    ({"registry": "debian", "kind": "deb"}, "pool is required for debian and invalid for others; add it"),
    ({"members": []}, "members [] is not a list; write patterns"),
    ({"members": "*"}, "members '*' is not a list"),
    ({"members": ["../x"]}, "member '../x' is not a path in an archive"),
    ({"members": ["/etc/*"]}, "member '/etc/*' is not a path in an archive"),
    ({"members": [3]}, "member 3 is not a path in an archive"),
    ({"licens": "MIT"}, "unknown key 'licens'; did you mean 'licence'? keys: "),
]


@pytest.mark.parametrize(("change", "words"), MISTAKES)
def test_invalid_row(
    change: dict[str, Any], words: str, good: dict[str, Any], errors_of: Callable[..., list[str]]
) -> None:
    (line,) = errors_of([good | change])
    assert line.startswith(f":1: {words}")


def test_several_errors(good: dict[str, Any], errors_of: Callable[..., list[str]]) -> None:
    lacking = {key: value for key, value in good.items() if key != "licence"}
    found = errors_of([lacking | {"size": -1}, "words", good | {"name": "other", "members": ["x\\y"]}])
    assert [line.partition(" ")[2].partition(";")[0] for line in found] == [
        "missing key 'licence'",
        "size -1 is not a byte count",
        "'words' is not a row",
        "member 'x\\\\y' is not a path in an archive",
    ]
    assert [int(line.split(":")[1]) for line in found] == sorted(int(line.split(":")[1]) for line in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- name: [", r":1: not YAML: "),
        ("name: x", r": does not contain a list of rows"),
        ("- name: one\n  name: two", r":1: key 'name' occurs twice"),
        ("- !!python/object/apply:os.system [ls]", r":1: not YAML: "),
        ("\x00", r": not YAML: "),
        ("- {!!bool 5: 1}", r": not YAML: "),
    ],
)
def test_invalid_table(text: str, words: str, errors_of: Callable[..., list[str]]) -> None:
    (line,) = errors_of(text)
    assert line.startswith(words)


SCRIPT = """
import sys
sys.path.append(sys.argv[1])
from engine import TecoInferError
from utils.fetch import packages
try:
    print(*packages())
except TecoInferError as error:
    print(error)
"""


def test_rows_of_contrib(good: dict[str, Any], tmp_path: Path, run_python: RunPython) -> None:
    shutil.copytree(ROOT / "contrib" / "utils", tmp_path / "contrib" / "utils")
    table = tmp_path / "contrib" / "utils" / "fetch" / "mine.yaml"
    table.write_text(yaml.safe_dump([good]), encoding="utf-8")
    names = run_python("-c", SCRIPT, tmp_path / "contrib").stdout.split()
    assert names == [*(package.name for package in CORE), "mine"]
    table.write_text(yaml.safe_dump([good | {"name": "minilm"}]), encoding="utf-8")
    done = run_python("-c", SCRIPT, tmp_path / "contrib").stdout
    first = re.escape(str(ROOT / "utils" / "fetch" / "packages.yaml"))
    assert re.fullmatch(rf"{re.escape(str(table))}:1: name 'minilm' is used in {first}:\d+; rename it\n", done)


def test_tables_of_another_zoo_on_the_path_are_ignored(tmp_path: Path, run_python: RunPython) -> None:
    """As with an installed zoo and a clone that runs."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "utils", tmp_path / "utils", ignore=ignored)
    table = tmp_path / "utils" / "fetch" / "packages.yaml"
    table.write_text(table.read_text(encoding="utf-8").replace("name: minilm", "name: older"), encoding="utf-8")
    assert run_python("-c", SCRIPT, tmp_path).stdout.split() == [package.name for package in CORE]
