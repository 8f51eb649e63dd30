"""Lazy attributes of packages: modules are imported when one of their names is first accessed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tecoinfer_modelzoo import refuse_hidden


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` (PEP 562) of a package; ``homes``: module -> names that it exports."""
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home:
            if package.isidentifier():
                refuse_hidden(package, name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        __import__(home[name])  # unlike importlib.import_module, visible in `python -X importtime`
        found = getattr(sys.modules[home[name]], name)
        setattr(sys.modules[package], name, found)  # cached for the next access
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home})

    return find, names
