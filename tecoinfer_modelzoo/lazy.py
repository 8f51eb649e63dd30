"""Lazy attributes of packages: modules are imported when one of their names is first accessed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tecoinfer_modelzoo import refuse_hidden


def lazily(
    package: str, homes: Mapping[str, str], former: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package (PEP 562) that has names of its modules.

    Args:
        package: its ``__name__``.
        homes: module -> the names that the package shows of it, separated by spaces.
        former: the same for names that it had before; they are found, and not listed.
    """
    shown = [name for names in homes.values() for name in names.split()]
    every = [*homes.items(), *(former or {}).items()]
    home = {name: module for module, names in every for name in names.split()}

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
        return sorted({*vars(sys.modules[package]), *shown})

    return find, names
