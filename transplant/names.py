"""Table of names: names of ``torch.cuda`` that ``torch.sdaa`` has, and replacements for the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.yaml_files import read_yaml

TABLE = Path(__file__).resolve().parent / "names.yaml"

CUDA = "torch.cuda"

_GENERAL = "torch.sdaa does not have it; see dir(torch.sdaa)"


@dataclass(frozen=True, slots=True)
class Names:
    """The table in ``names.yaml``, read by :func:`names`.

    Attributes:
        same: module -> its names that ``torch.sdaa`` has. absent: dotted name -> replacement.
        elsewhere, harmless, packages, redirected: prefix of a dotted name -> advice.
        similar: dotted name -> replacement with ``-sim``.
    """

    same: dict[str, frozenset[str]]
    absent: dict[str, str]
    elsewhere: dict[str, str]
    harmless: dict[str, str]
    packages: dict[str, str]
    redirected: dict[str, str]
    similar: dict[str, str]

    def lacking(self, name: str) -> str | None:
        """Return the replacement of a ``torch.cuda`` name that ``torch.sdaa`` lacks; ``None`` if it has it."""
        path = ""
        for part in name.split("."):
            if path in self.same and part not in self.same[path]:
                return self.absent.get(f"{path}.{part}", _GENERAL)
            path = f"{path}.{part}" if path else part
        return None

    def of_elsewhere(self, name: str) -> str | None:
        """Return the advice for a name outside ``torch.cuda``, or ``None``."""
        return _longest(self.elsewhere, name)

    def of_harmless(self, name: str) -> str | None:
        """Return why a name of CUDA can stay, or ``None``."""
        return _longest(self.harmless, name)

    def of_package(self, name: str) -> str | None:
        """Return the advice for a package of CUDA, or for one that selects devices by CUDA's names, or ``None``."""
        return _longest({**self.packages, **self.redirected}, name)

    def reason(self, name: str) -> str:
        """Return why a name of a package needs manual work: the same for all names of a package of ``redirected``."""
        package = name.partition(".")[0]
        if package in self.redirected:
            return f"{package} selects its devices by CUDA's names"
        return f"{name} does not run on the card"


def _longest(table: dict[str, str], name: str) -> str | None:
    parts = name.split(".")
    heads = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((table[head] for head in heads if head in table), None)


@cache
def names() -> Names:
    """Read the table."""
    found: dict[str, Any] = read_yaml(TABLE)
    found["redirected"] = {name: with_page_paths(advice) for name, advice in found["redirected"].items()}
    modules: dict[str, dict[str, Any]] = found["modules"]
    same = {module: frozenset(entry["same"].split()) for module, entry in modules.items()}
    absent = {f"{module}.{name}": text for module, entry in modules.items() for name, text in entry["absent"].items()}
    tables = (found[name] for name in ("elsewhere", "harmless", "packages", "redirected", "similar"))
    return Names(same, absent, *tables)
