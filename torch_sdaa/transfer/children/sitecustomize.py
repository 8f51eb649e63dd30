"""Loaded by every Python process that a script under ``torch_sdaa.run`` starts: redirects CUDA when it imports torch.

The runner puts this folder on ``PYTHONPATH``. Nothing of this package is imported before torch is, and nothing at all
by a Python of another environment, which may lack what the package needs. Another ``sitecustomize`` on the path, which
this one hides, is loaded too.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType

_RUNNER = "TORCH_SDAA_RUNNER"
"""Environment variable of the runner: its ``sys.prefix``."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
"""The folder that contains ``torch_sdaa``."""


class _AfterTorch(MetaPathFinder, Loader):
    """Finds torch like the standard finder, and imports ``torch_sdaa`` after it."""

    def __init__(self) -> None:
        self._own: Loader | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of torch with this loader; ``None`` for every other module."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._own, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return the module of the standard loader."""
        return self._own.create_module(spec) if self._own is not None else None

    def exec_module(self, module: ModuleType) -> None:
        """Execute torch, then import ``torch_sdaa``, unless that is why torch is imported."""
        if self._own is None:
            return
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._own
        self._own.exec_module(module)
        if importlib.util.find_spec("torch_sdaa") is None:
            sys.path.append(_ROOT)
        import torch_sdaa  # noqa: F401 -- TORCH_SDAA_TRANSFER, which the runner sets, starts the redirection


def _load_hidden() -> None:
    """Execute the ``sitecustomize`` that would have been loaded without this one."""
    rest = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get(_RUNNER) == sys.prefix and "torch" not in sys.modules:
    sys.meta_path.insert(0, _AfterTorch())
_load_hidden()
