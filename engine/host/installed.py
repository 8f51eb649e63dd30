"""Installed components and available targets: the banner of ``python -m engine``.

Versions come from package metadata, so no vendor package is imported.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from engine.base import ConfigError, engine_nums, usable_cores
from engine.registry import available_targets, computes, provider, unavailable_targets
from tecoinfer_modelzoo import clone, native, version
from tecoinfer_modelzoo.text import one_line, printable, shortened

SCHEMA_VERSION = 1

PACKAGES = {
    "numpy": ("numpy",),
    "onnx": ("onnx",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "onnxscript": ("onnxscript",),
    "Pillow": ("pillow",),
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    "polygraphy": ("polygraphy",),
    "openvino": ("openvino",),
    "torch": ("torch",),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
}
"""Each component and the distributions that may install it."""

PREFIXES = ("TECO_", "OMPI_", "SDAA_VISIBLE_DEVICES", "MAX_ENGINE_NUMS")
"""Prefixes of environment variables that change the zoo's behaviour."""


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def zoo_version() -> str | None:
    """Return the version of the running zoo, from a clone or installed; ``None`` if it is unknown."""
    return version()


def version_line(program: str) -> str:
    """Return the line of ``--version``: the zoo's version and location, and versions that determine its values."""
    root = clone()
    parts = [f"from {root}"] if root is not None else []
    for name in ("python", "numpy", "onnx", "onnxruntime"):
        parts.append(f"{name} {platform.python_version() if name == 'python' else component_version(name)}")
    return f"{program} {zoo_version()} ({', '.join(parts)})"


def components() -> dict[str, str | None]:
    """Return each component's version or ``None``; an unusual distribution follows in parentheses."""
    found: dict[str, str | None] = {"python": platform.python_version(), "zoo": zoo_version()}
    return found | {name: component_version(name) for name in PACKAGES}


def component_version(name: str) -> str | None:
    """Return the version of one of :data:`PACKAGES`, as :func:`components` does."""
    distributions = PACKAGES[name]
    versions = {distribution: _version(distribution) for distribution in distributions}
    installed = [f"{v} ({d})" if d != distributions[0] else v for d, v in versions.items() if v is not None]
    return ", ".join(installed) or None


def targets() -> dict[str, dict[str, Any]]:
    """Return every target: the provider of an available one, what to install for another."""
    found: dict[str, dict[str, Any]] = {}
    for name in available_targets():
        by = provider(name)
        found[name] = {"available": True, "provider": by, "computes": computes(name) if by == "built-in" else None}
    for name, install in unavailable_targets().items():
        found[name] = {"available": False, "computes": computes(name), "install": install}
    return dict(sorted(found.items()))


def variables() -> dict[str, str]:
    """Return the environment variables that are set and change the zoo's behaviour."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}


def report() -> dict[str, Any]:
    """Return all of it in JSON types; ``spa_per_card`` is ``None`` if ``MAX_ENGINE_NUMS`` is invalid."""
    try:
        spa: int | None = engine_nums()
    except ConfigError:
        spa = None
    return {
        "schema_version": SCHEMA_VERSION,
        "components": components(),
        "targets": targets(),
        "spa_per_card": spa,
        "usable_cores": usable_cores(),
        "image_kernels": native.status(),
        "environment": variables(),
    }


def banner(shown: dict[str, Any]) -> str:
    """Return a :func:`report` as a table, ending in a newline."""
    versions = {name: version or "not installed" for name, version in shown["components"].items()}
    served = {name: _target_line(target) for name, target in shown["targets"].items()}
    settings = {"usable cores": str(shown["usable_cores"]), "image kernels": shown["image_kernels"]}
    settings |= shown["environment"]
    if shown["spa_per_card"] is None:
        settings["MAX_ENGINE_NUMS"] += "  (invalid: must be a whole number from 1 to 8)"
    else:
        settings.setdefault("MAX_ENGINE_NUMS", f"{shown['spa_per_card']}  (default)")
    sections = [("component", "version", versions), ("target", "served by", served), ("setting", "value", settings)]
    width = max(len(name) for _, _, rows in sections for name in rows) + 1
    rule = f"{'-' * width}+{'-' * (78 - width)}" if width < 60 else f"{'-' * width}+"
    lines: list[str] = []
    for head, what, rows in sections:
        lines += [rule, f"{head:<{width}}| {what}", rule]
        # A value may contain line breaks.
        lines += [f"{name:<{width}}| {shortened(printable(one_line(value), keep=''))}" for name, value in rows.items()]
    return "\n".join([*lines, rule, ""])


def _target_line(target: dict[str, Any]) -> str:
    first = target["provider"] if target["available"] else f"not available, run {target['install']}"
    return first if target["computes"] is None else f"{first}: {target['computes']}"
