"""Skip the tests of training if the extension cannot be compiled."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

COMPILERS = (os.environ.get("CXX") or "g++", "c++", "clang++")
WHY_NOT = (
    "torch is not installed"
    if importlib.util.find_spec("torch") is None
    else "there is no C++ compiler; run: apt-get install g++"
    if not any(map(shutil.which, COMPILERS))
    else ""
)


if not WHY_NOT:  # torch.testing imports it, and its import fails where a test before has loaded the standard distutils
    import setuptools  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _only_new_garbage() -> Iterator[None]:
    """Exclude objects of other tests from the collections by which memory is counted: each would take a second.

    So would this, were it done for each file.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def compiles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reset ``torch.compile``: neither this process nor the disk has earlier compilations."""
    import torch

    from torch_sdaa import dynamo

    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    dynamo.clear()
    yield
    torch.compiler.reset()


class Skipped(pytest.Module):
    """A file of tests that is not imported."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(WHY_NOT, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not WHY_NOT:
        return None
    module: pytest.Module = Skipped.from_parent(parent, path=module_path)
    return module
