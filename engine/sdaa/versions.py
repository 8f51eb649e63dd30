"""Versions of packages and of the zoo's files that determine the contents of a saved engine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from engine.sdaa.lower import MADE_OF
from tecoinfer_modelzoo.files import hash_files

_COMPONENTS = ("zoo", "onnx", "onnxruntime", "onnxscript")


@lru_cache(maxsize=1)
def versions() -> Mapping[str, str]:
    """Return the versions that determine the contents of a saved engine."""
    from engine.host.installed import components

    found = components()
    return {name: found[name] or "none" for name in _COMPONENTS} | {"sources": hash_files(*sources())[:12]}


def lowering_versions() -> Mapping[str, str]:
    """Return :func:`versions`, under a name that differs from the module's."""
    return versions()


def sources() -> list[Path]:
    """Return the zoo's files that determine a saved engine: those of :data:`engine.sdaa.lower.MADE_OF`."""
    root = Path(__file__).resolve().parents[2]
    return [file for name in MADE_OF for file in _files(root.joinpath(*name.split(".")))]


def _files(module: Path) -> list[Path]:
    return sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
