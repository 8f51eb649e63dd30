"""Which versions decide what is in a saved engine: of packages, and of the zoo's own files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from engine.sdaa.lower import MADE_OF
from tecoinfer_modelzoo.files import hash_files

_COMPONENTS = ("zoo", "onnx", "onnxruntime", "onnxscript")


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    """Return the versions of what decides the contents of a saved engine."""
    from engine.host.installed import components

    found = components()
    return {name: found[name] or "none" for name in _COMPONENTS} | {"sources": hash_files(*sources())[:12]}


def lowering_versions() -> Mapping[str, str]:
    """Return the same under a name that no module has, for whoever keeps what was lowered elsewhere."""
    return versions()


def sources() -> list[Path]:
    """Return the zoo's own files that decide what is saved: those of :data:`engine.sdaa.lower.MADE_OF`."""
    root = Path(__file__).resolve().parents[2]
    return [file for name in MADE_OF for file in _files(root.joinpath(*name.split(".")))]


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
