"""Tests of what a check keeps for the next: nothing runs if nothing has changed, and every changed byte is noticed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from stub_model import Stub, write_zoo

from model_config.cases.config import Case, Command
from model_config.cases.imports import Imports
from model_config.check import main
from model_config.remembered import KIND, Remembered, key_of
from model_config.run.key import Shared, case_key
from model_config.structure import check_shared

FILES = {
    "example/x/m/valid.py": "import engine\nx = 1\n",
    "example/x/m/data/1.png": "png one",
    "example/x/m/weights.onnx": "weights of a model",
    "example/x/m/perf.yaml": "metric: 1\n",
    "engine/__init__.py": "from engine.base import x\n",
    "engine/base.py": "x = 1\n",
    "engine/table.yaml": "rate: 1\n",
    "model_config/check.py": "x = 1\n",
    "shared/2.png": "png two",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / KIND


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "repo"


def change(path: Path) -> None:
    """Change one byte and keep the file's size and time."""
    times, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert path.stat().st_mtime_ns == times.st_mtime_ns


def key(root: Path) -> str:
    """Return the key of a case as the next check would find it."""
    step = Command("valid", "valid.py", {"ckpt": "weights.onnx", "data_path": "../../../shared"})
    remembered = Remembered()
    found = case_key(
        Case("m", "example/x/m", (step,), Path("model.yaml")),
        root,
        shared=Shared(root, Imports(root, remembered=remembered)),
    )
    remembered.save()
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_noticed_though_size_and_time_are_the_same(root: Path, name: str) -> None:
    before = key(root)
    assert key(root) == before
    change(root / name)
    assert key(root) != before


def test_a_new_import_is_found_although_the_file_keeps_size_and_time(root: Path) -> None:
    """The names in a file are stored under its content, so the file it imports now is part of the key."""
    path, other = root / "engine/base.py", root / "engine/late.py"
    other.write_text("y = 1\n")
    path.write_text("import engine.some\n")
    key(root)
    times = path.stat()
    path.write_text("import engine.late\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    before = key(root)
    change(other)
    assert key(root) != before


def test_names_from_the_cache_are_those_of_a_new_parse(root: Path) -> None:
    case = Case("m", "example/x/m", (Command("valid", "valid.py", {}),), Path("model.yaml"))
    (root / "example/x/m/valid.py").write_text("from . import near\nimport engine\nTABLE = 'engine.base:x'\n")
    (root / "example/x/m/near.py").write_text("")
    wanted = Imports(root).of_case(case)
    assert {"example/x/m/near.py", "engine/base.py", "engine/table.yaml"} <= wanted
    first = Remembered()
    assert Imports(root, remembered=first).of_case(case) == wanted
    first.save()
    assert Imports(root, remembered=Remembered()).of_case(case) == wanted


def test_damaged_facts_are_derived_again(root: Path) -> None:
    path = root / "engine/__init__.py"
    case = Case("m", "example/x/m", (Command("valid", "valid.py", {}),), Path("model.yaml"))
    wanted = Imports(root).of_case(case)
    for fact in ("text", [1, 2], [["a"], [["b"]], []], [[["c"]], [], []]):
        damaged = Remembered()
        damaged.keep(key_of("names", "engine", path.read_bytes()), fact)
        assert Imports(root, remembered=damaged).of_case(case) == wanted


def test_facts_are_stored_and_dropped(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Remembered()
    assert first.find("a") is None
    first.keep("a", [1])
    first.keep("b", [2])
    assert first.find("a") == [1]
    first.save()
    assert Remembered().find("a") == [1]
    assert Remembered(stored=False).find("a") is None
    (file,) = cache.iterdir()
    written = file.stat().st_mtime_ns
    Remembered().save()  # nothing is new
    assert file.stat().st_mtime_ns == written
    monkeypatch.setattr("model_config.remembered._SPARE", 1)
    third = Remembered()
    third.keep("c", [3])
    third.save()
    assert [Remembered().find(one) for one in "abc"] == [None, [2], [3]]
    monkeypatch.setattr("model_config.remembered._code", lambda: "0" * 64)  # another version of the check
    assert Remembered().find("c") is None


def test_shared_files_without_a_finding_are_not_parsed_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"utils/good.py": "x = 1\ny = float(x)\n", "utils/bad.py": "x = eval('1')\n"}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    names = ["utils/good.py", "utils/bad.py", "utils/gone.py"]
    first = Remembered()
    wanted = check_shared(names, root, first)
    assert [(one.file, one.rule) for one in wanted] == [("utils/bad.py", "unsafe")]
    assert check_shared(names, root) == wanted
    first.save()
    parsed: list[Any] = []
    real = check_shared.__globals__["scripts"].check_syntax

    def syntax(source: Any) -> Any:
        parsed.append(source.name)
        return real(source)

    monkeypatch.setitem(check_shared.__globals__["FILE_RULES"], "syntax", syntax)
    assert check_shared(names, root, Remembered()) == wanted
    assert parsed == ["utils/bad.py"]  # a finding is derived anew, with its line and text
    path, times = root / "utils/good.py", (root / "utils/good.py").stat()
    path.write_text("x = '1'\ny = eval(x)\n"[: times.st_size].ljust(times.st_size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = check_shared(names, root, Remembered())
    assert [(one.file, one.line) for one in found] == [("utils/bad.py", 1), ("utils/good.py", 2)]


def test_a_check_without_changes_starts_no_step(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def good(stub: Stub) -> None:
        """Break nothing."""

    write_zoo(root, {"good": good})
    argv = ["--work_dir", str(tmp_path / "work")]
    assert main(argv, root=root) == 0
    started: list[str] = []
    popen = subprocess.Popen.__init__

    def start(self: subprocess.Popen[Any], words: Any, *args: Any, **options: Any) -> None:
        started.append(words[0])
        popen(self, words, *args, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", start)
    assert main(argv, root=root) == 0
    assert set(started) <= {"git"}
    script = root / "contrib/example/stubs/good/example_valid.py"
    script.write_text(script.read_text() + "\n")
    assert main(argv, root=root) == 0
    assert set(started) > {"git"}
    capsys.readouterr()
