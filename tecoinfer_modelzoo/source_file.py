"""Import of Python files given by path: pass files and torch modules."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import CodeType, ModuleType


class _SourceLoader(SourceFileLoader):
    """Loader that compiles the source each time.

    A cached file would lie next to the user's file, and Python would use it for a different file of the same name,
    second of modification and size. ``sys.dont_write_bytecode`` would affect all threads.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(path: Path, name: str) -> ModuleType:
    """Run a ``.py`` file as the module ``name``, without reading or writing bytecode caches.

    The module is in ``sys.modules``, as dataclasses and pickle need, unless its execution failed; it replaces a module
    of the same name. Imports in the file work as usual.

    Raises:
        ImportError: the file does not end in ``.py``. Errors of reading, compiling or running it are passed on.
    """
    if path.suffix != ".py":
        raise ImportError(f"{path} is not a Python file; rename it to end in .py", path=str(path))
    file = str(path.absolute())
    spec = spec_from_file_location(name, file, loader=_SourceLoader(name, file))
    assert spec is not None  # noqa: S101 - a loader is given
    assert spec.loader is not None  # noqa: S101 - the given loader
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(name) is module:  # another thread may have imported the file meanwhile
            sys.modules.pop(name, None)
        raise
    return module
