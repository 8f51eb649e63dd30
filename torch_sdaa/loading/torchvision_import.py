"""Allow importing torchvision if its compiled operators belong to another build of PyTorch.

The usual wheel of torchvision is built for PyTorch with CUDA. With another build its operators do not load, and the
import fails with "operator torchvision::nms does not exist", even if a script only needs a network or a transform. The
schemas of its detection operators are sufficient for the import; calling one raises an error of torchvision.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import torch

_PACKAGE = "torchvision"
_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets the operators when the Library object dies


def ease_when_imported() -> None:
    """Prepare the import of torchvision, when it happens."""
    if _PACKAGE not in sys.modules:
        sys.meta_path.insert(0, _BeforeImport())


class _BeforeImport(MetaPathFinder):
    """Finds nothing; it detects the import of torchvision, and unregisters itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return ``None``: the module is found by other finders."""
        if name == _PACKAGE:
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.submodule_search_locations:
                _declare_missing(Path(spec.submodule_search_locations[0]))
        return None


def _declare_missing(package: Path) -> None:
    for library in sorted(package.glob("_C*.so")):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue  # another build's; without any library the operators are declared below
    missing = [name for name in _OPERATORS if not hasattr(torch.ops.torchvision, name)]
    if missing:
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(declared)
