"""A user's Python file is run from its source alone, and keeps everything a module has."""

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
    """Have Python write cached code, whatever the environment of the tests says."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


@pytest.mark.usefixtures("writing")
def test_nothing_is_left_beside_the_file(file: Path) -> None:
    import_file(file, NAME)
    assert [path.name for path in file.parent.rglob("*")] == ["given.py"]
    PassOptions.load(file)
    assert [path.name for path in file.parent.rglob("*")] == ["given.py"]


def test_reading_a_pass_file_leaves_nothing_in_a_fresh_process(file: Path, run_python: RunPython) -> None:
    """And what the file imports is cached as usual: nobody else's setting is touched."""
    (file.parent / "lib").mkdir()
    (file.parent / "lib" / "helper.py").write_text("A = 1\n", encoding="utf-8")
    file.write_text("import helper\nskip_ops = ['Exp']\n", encoding="utf-8")
    code = "import sys; from pathlib import Path; from engine.passes.options import PassOptions\n"
    code += "assert PassOptions.load(Path(sys.argv[1])).skip_ops == {'Exp'} and not sys.dont_write_bytecode"
    done = run_python("-c", code, file, path=(ROOT, file.parent / "lib"), PYTHONDONTWRITEBYTECODE="")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in file.parent.iterdir()) == ["given.py", "lib"]
    assert [path.name.split(".")[0] for path in (file.parent / "lib" / "__pycache__").iterdir()] == ["helper"]


def test_cached_code_of_another_file_is_not_taken(file: Path) -> None:
    """Of the same name, size and second, as a file that is written twice in a row has."""
    file.write_text("A = 1\n", encoding="utf-8")
    py_compile.compile(str(file), doraise=True)
    times = file.stat()
    file.write_text("A = 2\n", encoding="utf-8")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert import_file(file, NAME).A == 2


def test_a_module_keeps_what_modules_have(file: Path) -> None:
    module = import_file(file, NAME)
    pair = module.Pair(1, [2])
    assert pickle.loads(pickle.dumps(pair)) == pair  # noqa: S301 - our own bytes
    assert inspect.getsource(module.fail).startswith("def fail")
    assert Path(module.__file__ or "") == file
    with pytest.raises(RuntimeError) as caught:
        module.fail()
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.line) == (str(file), 'raise RuntimeError("at work")')


def test_a_path_from_here_stays_right_elsewhere(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(file.parent)
    module = import_file(Path(file.name), NAME)
    monkeypatch.chdir("/")
    assert inspect.getsource(module.fail).startswith("def fail")


def test_the_encoding_a_file_names(file: Path) -> None:
    file.write_bytes("# -*- coding: latin-1 -*-\nA = 'é'\n".encode("latin-1"))
    assert import_file(file, NAME).A == "é"


@pytest.mark.parametrize(
    ("text", "error"), [("1 / 0", ZeroDivisionError), ("def f(:", SyntaxError), ("raise SystemExit", SystemExit)]
)
def test_a_file_that_fails_is_not_there(file: Path, text: str, error: type[BaseException]) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(error):
        import_file(file, NAME)
    assert NAME not in sys.modules


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("A = 1", encoding="utf-8")
    with pytest.raises(ImportError, match=r"given\.txt is not a Python file; give it the ending \.py"):
        import_file(tmp_path / "given.txt", NAME)
    with pytest.raises(FileNotFoundError):
        import_file(tmp_path / "none.py", NAME)
    assert NAME not in sys.modules


def test_one_bad_file_read_by_many_threads(file: Path) -> None:
    file.write_text("import time\ntime.sleep(0.01)\n1 / 0\n", encoding="utf-8")

    def told(_: int) -> str:
        with pytest.raises(PassError) as caught:
            PassOptions.load(file)
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert {message.split("imported: ")[1].split(":")[0] for message in pool.map(told, range(32))} == {
            "ZeroDivisionError"
        }
