"""``import apex`` without an installed apex: :mod:`torch_sdaa.apex` under that name.

Python calls this finder last, so that an installed apex takes precedence, and ``import torch_sdaa`` is not slowed down.
``from torch_sdaa import apex`` imports the same module.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

NAME = "apex"
OURS = "torch_sdaa.apex"

_NORMS = "use torch.nn.LayerNorm or torch.nn.RMSNorm, which the device computes in one launch"
_INSTEAD = {
    "normalization": _NORMS,
    "fp16_utils": "use apex.amp.initialize(..., opt_level='O2'), which keeps the state",
    "multi_tensor_apply": "use torch._foreach_* operators, one launch for a list of tensors",
    "contrib": "use the equivalents in torch.nn",
    "transformer": "use torch.distributed.tensor.parallel",
    "RNN": "use torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN",
    "reparameterization": "use torch.nn.utils.parametrizations.weight_norm",
    "mlp": "use torch.nn.Linear and an activation",
}
"""Modules of NVIDIA's apex that do not exist here, and replacements."""


class Finder:
    """Finds ``apex`` if no other finder does."""

    def __init__(self) -> None:
        self._spec: ModuleSpec | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``apex``.

        Raises:
            ModuleNotFoundError: a submodule does not exist here; the message has a replacement.
        """
        if name == NAME:
            return importlib.util.spec_from_loader(NAME, self, is_package=True)  # type: ignore[arg-type]
        head, _, rest = name.partition(".")
        if head == NAME and sys.modules.get(NAME) is sys.modules.get(OURS) is not None:
            instead = _INSTEAD.get(rest.partition(".")[0], "it has amp, optimizers and parallel")
            raise ModuleNotFoundError(f"the apex of torch_sdaa has no {name!r}: {instead}", name=name)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return ``torch_sdaa.apex``; its submodules get both names, so that a process has one state of amp."""
        module = importlib.import_module(OURS)
        self._spec = module.__spec__
        for name, each in list(sys.modules.items()):
            if name.startswith(f"{OURS}."):
                sys.modules[NAME + name.removeprefix(OURS)] = each
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's spec: it was already executed under its own name."""
        module.__spec__ = self._spec


def offer() -> None:
    """Register the finder."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
