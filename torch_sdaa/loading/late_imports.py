"""Call a function as soon as a module is imported, without importing it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType


def when_imported(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """Call a function now if a module is imported, else as soon as it is.

    Returns:
        A function that cancels the call.
    """
    if name in sys.modules:
        call()
        return lambda: None
    finder = _AfterImport(name, call)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _AfterImport(MetaPathFinder):
    """Finds one module like the standard finder, with a loader that makes the call."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name, self.call = name, call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's spec; ``None`` for every other module."""
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Calling(self, spec.loader)
        return spec

    def leave(self) -> None:
        """Unregister the finder."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Calling(Loader):
    """Loads a module like its original loader, unregisters the finder, and makes the call."""

    def __init__(self, finder: _AfterImport, own: Loader) -> None:
        self._finder, self._own = finder, own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return the module of the original loader."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then make the call."""
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        self._finder.leave()
        self._finder.call()
