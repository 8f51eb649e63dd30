"""The file of results: written when a row finishes, and read to continue a stopped sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from utils.pipeline.report.report import write_json

SCHEMA_VERSION = 1
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "onnxsim", "openvino", "timm", "torch", "torchvision",
            "transformers")  # fmt: skip
"""Packages on which results depend, in addition to the sources."""

_SOURCES = ("engine/**/*.py", "engine/**/*.yaml", "utils/export/*.py", "benchmarks/sweep/*.py")


def versions() -> dict[str, str]:
    """Return the version of every package; "" where it is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def digest() -> str:
    """Return a hash of the sources and versions that results depend on."""
    found = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for path in sorted({path for pattern in _SOURCES for path in ROOT.glob(pattern)}):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


class Results:
    """Rows that have finished, by name, for the current sources.

    Args:
        path: the JSON file; rows of other sources are dropped. again: drop all rows.
    """

    def __init__(self, path: Path, again: bool = False) -> None:
        self.path, self.sources = path, digest()
        self.rows: dict[str, dict[str, Any]] = {} if again else self._kept()

    def _kept(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        same = (found.get("schema_version"), found.get("sources")) == (SCHEMA_VERSION, self.sources)
        return dict(found["rows"]) if same else {}

    def add(self, name: str, family: str, outcomes: Sequence[dict[str, Any]]) -> None:
        """Take in a finished row, and write the file."""
        self.rows[name] = {"family": family, "outcomes": list(outcomes)}
        when = datetime.now(timezone.utc).isoformat(timespec="seconds")
        head = {"schema_version": SCHEMA_VERSION, "benchmark": "model_sweep", "measured": when, "sources": self.sources}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json({**head, "weights": "random", "versions": versions(), "rows": self.rows}, self.path)

    def findings(self) -> list[dict[str, Any]]:
        """Return the outcomes that are neither right nor refused as expected."""
        return [one for row in self.rows.values() for one in row["outcomes"] if one["verdict"]["status"] == "finding"]
