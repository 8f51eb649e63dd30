"""Python files that a user names by their path: pass files, and files with a torch module."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType, ModuleType


class _SourceLoader(SourceFileLoader):
    """Compiles the source each time.

    Cached code would lie beside the user's file, and Python takes it for that of another file under the same name where
    both were written in the same second and are of the same size. ``sys.dont_write_bytecode`` is all threads' business.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(path: Path, name: str) -> ModuleType:
    """Run a Python file as a module, from its source alone: no cached code is read, and none is left beside it.

    The module stands in ``sys.modules``, where dataclasses and pickling look it up, unless running it failed. What the
    file itself imports is imported as usual.

    Args:
        path: the file; it ends in ``.py``. name: what the module is called; another of that name gives way to it.

    Raises:
        ImportError: the file does not end in ``.py``. Besides that, whatever reading, compiling or running it raises.
    """
    if path.suffix != ".py":
        raise ImportError(f"{path} is not a Python file; give it the ending .py", path=str(path))
    file = str(path.absolute())
    spec = spec_from_file_location(name, file, loader=_SourceLoader(name, file))
    assert spec is not None  # noqa: S101 - there is always one for a given loader
    assert spec.loader is not None  # noqa: S101 - the given one
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(name) is module:  # another thread may have imported the file meanwhile
            sys.modules.pop(name, None)
        raise
    return module
