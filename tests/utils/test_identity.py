"""What the files are that flags name, and the code that functions are made of."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest

from utils import identity
from utils.code_files import code_files, file_of
from utils.identity import inputs_of, names_files
from utils.tasks.classification.task import CLASSIFICATION


def contents(**flags: object) -> dict[str, str]:
    found = inputs_of({}, flags, []).contents
    return {name: content for name, content in found.items() if name.startswith("--")}


def test_files_are_compared_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("a")
    (tmp_path / "other.txt").write_text("a")
    (tmp_path / "words" / "deep").mkdir(parents=True)
    (tmp_path / "words" / "deep" / "vocab.txt").write_text("b")
    assert contents(a="one.txt") == contents(a=tmp_path / "other.txt")
    assert set(contents(a=["one.txt", 3, "x", "words"])) == {"--a 0", "--a 3/deep/vocab.txt"}
    assert set(contents(a="NAME=one.txt", b={"x": "one.txt"})) == {"--a", "--b x"}
    assert not names_files(None)
    assert not any(map(names_files, (3, "", "no.txt", "\0", "a=\0", "=", ["x"], (), "x" * 5000)))


def test_large_folders_are_compared_by_sizes_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in (("MOST_FILES", 2), ("MOST_BYTES", 5)):
        folder = tmp_path / limit
        folder.mkdir()
        for name in "abc":
            (folder / name).write_text("xx")
            os.utime(folder / name, (1, 1))
        with monkeypatch.context() as patched:
            patched.setattr(identity, limit, value)
            before = contents(a=folder)
            assert set(before) == {"--a/"}
            (folder / "a").write_text("yy")
            os.utime(folder / "a", (1, 1))
            assert contents(a=folder) == before
            os.utime(folder / "a", (2, 2))
            assert contents(a=folder) != before
        assert set(contents(a=folder)) == {"--a/a", "--a/b", "--a/c"}


def test_files_of_wrapped_functions() -> None:
    class Called:
        def __call__(self) -> None: ...

    @functools.wraps(contents)
    def wrapping() -> None: ...

    here = Path(__file__)
    for function in (contents, functools.partial(contents, a=1), wrapping, Called(), Called, Called().__call__):
        assert file_of(function) == here
    assert file_of(len) is None


def test_imports_are_followed_outside_the_zoo_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "own_task.py": "from own_parts import deep\nimport numpy, tecoinfer_modelzoo.formatting\nNAMES = 'names.txt'\n",
        "own_parts/__init__.py": "",
        "own_parts/deep.py": "from . import beside\nfrom .. import nothing\n",
        "own_parts/beside.py": "import own_task\nimport gone\n",
        "own_parts/unused.py": "",
        "names.txt": "a",
        "broken.py": "def",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = code_files([], [tmp_path / "own_task.py", tmp_path / "broken.py"])
    wanted = {"own_task.py", "own_parts/__init__.py", "own_parts/deep.py", "own_parts/beside.py", "names.txt"}
    assert set(found.values()) == {(tmp_path / name).resolve() for name in wanted | {"broken.py"}}
    assert not set(code_files([CLASSIFICATION.decode, CLASSIFICATION.load]).values())
