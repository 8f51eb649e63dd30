"""Run a command of `teco` as in another clone: run_zoo.py ROOT COMMAND [arguments]."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from utils.pipeline.cli import run


def main() -> int:
    """Run the command's own ``main`` on a root."""
    root, name, *words = sys.argv[1:]
    return int(importlib.import_module(f"toolkit.commands.{name}").main(words, Path(root)))


if __name__ == "__main__":
    run(main)
