"""``from torch.contrib.sdaa.optimized_lib import ...``: the name of that library in guides for such cards."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PLACES = {"torch.contrib.sdaa": "torch_sdaa.contrib"}
PLACES |= {f"{place}.optimized_lib": f"{ours}.optimized_lib" for place, ours in PLACES.items()}
"""Alias -> module."""


class Finder:
    """Finds ``torch.contrib.sdaa``; its contents are imported on first use."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an alias."""
        return importlib.util.spec_from_loader(name, self, is_package=True) if name in PLACES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module, which has both names."""
        module = importlib.import_module(PLACES[spec.name])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's spec: it was already executed under its own name."""
        module.__spec__ = self._specs[next(name for name, ours in PLACES.items() if ours == module.__name__)]


def offer() -> None:
    """Register the finder."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())  # Python's finder would load the folder again under the alias
