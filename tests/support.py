"""Names that several test files share; the fixtures that go with them are in conftest.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "example" / "classification" / "digits"

SaveOnnx = Callable[..., Path]


class RunPython(Protocol):
    def __call__(
        self, *args: object, cwd: Path = ..., path: Sequence[Path] = ..., limit: float = ..., **env: str
    ) -> subprocess.CompletedProcess[str]: ...
