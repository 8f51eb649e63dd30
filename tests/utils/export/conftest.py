from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from utils.pipeline import cli

EXAMPLES = Path(__file__).resolve().parents[3] / "example"

Script = Callable[..., int]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Run an example script with these options and return its exit code; its output is in capsys."""

    def call(path: str, *options: object) -> int:
        file = EXAMPLES / path
        monkeypatch.syspath_prepend(file.parent)  # undone with whatever the script adds
        monkeypatch.setattr(sys, "argv", [str(file), *map(str, options)])
        spec = importlib.util.spec_from_file_location(f"script_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # cli.run replaces it
        with pytest.raises(SystemExit) as ended:
            cli.run(module.main)
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return call
