"""Does something to a module as soon as somebody imports it, without importing it for that."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType


def when_imported(name: str, call: Callable[[], None]) -> Callable[[], None]:
    """Call a function now where a module is imported, else as soon as it is.

    Returns:
        What takes the order back.
    """
    if name in sys.modules:
        call()
        return lambda: None
    finder = _AfterImport(name, call)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _AfterImport(MetaPathFinder):
    """Finds one module as everybody else would, with a loader that makes the call."""

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
        """Find nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Calling(Loader):
    """Loads a module as its own loader would, takes the finder away, and makes the call."""

    def __init__(self, finder: _AfterImport, own: Loader) -> None:
        self._finder, self._own = finder, own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return what its own loader makes."""
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then the call."""
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        self._finder.leave()
        self._finder.call()
