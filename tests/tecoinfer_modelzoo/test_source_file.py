"""Import of a user's Python file from its source, without bytecode caches."""

from __future__ import annotations

import inspect
import os
import pickle
import py_compile
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import ROOT, RunPython

from engine import PassError
from engine.passes import PassOptions
from tecoinfer_modelzoo.source_file import import_file

NAME = "_a_file_of_a_user"

SOURCE = '''"""A file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Pair:
    left: int
    right: list[int]


def fail() -> None:
    raise RuntimeError("at work")
'''


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "given.py"
    path.write_text(SOURCE, encoding="utf-8")
    yield path
    sys.modules.pop(NAME, None)


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enable bytecode caches regardless of the test environment."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


@pytest.mark.usefixtures("writing")
def test_no_bytecode_is_written(file: Path) -> None:
    import_file(file, NAME)
    assert [path.name for path in file.parent.rglob("*")] == ["given.py"]
    PassOptions.load(file)
    assert [path.name for path in file.parent.rglob("*")] == ["given.py"]


def test_no_bytecode_is_written_in_a_new_process(file: Path, run_python: RunPython) -> None:
    """Modules that the file imports are cached as usual."""
    (file.parent / "lib").mkdir()
    (file.parent / "lib" / "helper.py").write_text("A = 1\n", encoding="utf-8")
    file.write_text("import helper\nskip_ops = ['Exp']\n", encoding="utf-8")
    code = "import sys; from pathlib import Path; from engine.passes.options import PassOptions\n"
    code += "assert PassOptions.load(Path(sys.argv[1])).skip_ops == {'Exp'} and not sys.dont_write_bytecode"
    done = run_python("-c", code, file, path=(ROOT, file.parent / "lib"), PYTHONDONTWRITEBYTECODE="")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in file.parent.iterdir()) == ["given.py", "lib"]
    assert [path.name.split(".")[0] for path in (file.parent / "lib" / "__pycache__").iterdir()] == ["helper"]


def test_stale_bytecode_is_ignored(file: Path) -> None:
    """Of a file with the same name, size and second of modification."""
    file.write_text("A = 1\n", encoding="utf-8")
    py_compile.compile(str(file), doraise=True)
    times = file.stat()
    file.write_text("A = 2\n", encoding="utf-8")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert import_file(file, NAME).A == 2


def test_the_module_supports_pickle_source_and_tracebacks(file: Path) -> None:
    module = import_file(file, NAME)
    pair = module.Pair(1, [2])
    assert pickle.loads(pickle.dumps(pair)) == pair  # noqa: S301 - our own bytes
    assert inspect.getsource(module.fail).startswith("def fail")
    assert Path(module.__file__ or "") == file
    with pytest.raises(RuntimeError) as caught:
        module.fail()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.line) == (str(file), 'raise RuntimeError("at work")')


def test_a_relative_path_survives_chdir(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(file.parent)
    module = import_file(Path(file.name), NAME)
    monkeypatch.chdir("/")
    assert inspect.getsource(module.fail).startswith("def fail")


def test_declared_encoding(file: Path) -> None:
    file.write_bytes("# -*- coding: latin-1 -*-\nA = 'é'\n".encode("latin-1"))
    assert import_file(file, NAME).A == "é"


@pytest.mark.parametrize(
    ("text", "error"), [("1 / 0", ZeroDivisionError), ("def f(:", SyntaxError), ("raise SystemExit", SystemExit)]
)
def test_a_failed_module_is_removed(file: Path, text: str, error: type[BaseException]) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        import_file(file, NAME)
    assert NAME not in sys.modules


def test_invalid_paths(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("A = 1", encoding="utf-8")
    with pytest.raises(ImportError, match=r"given\.txt .*\.py"):
        import_file(tmp_path / "given.txt", NAME)
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path / "none.py", NAME)
    assert NAME not in sys.modules


def test_a_failing_file_imported_by_many_threads(file: Path) -> None:
    file.write_text("import time\ntime.sleep(0.01)\n1 / 0\n", encoding="utf-8")

    def error_of(_: int) -> str:
        with pytest.raises(PassError) as caught:
            PassOptions.load(file)
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert {message.split("imported: ")[1].split(":")[0] for message in pool.map(error_of, range(32))} == {
            "ZeroDivisionError"
        }
