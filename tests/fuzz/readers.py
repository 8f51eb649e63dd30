"""Read one configuration file as a command does, without other inputs: readers.py WHAT PATH; exit code 2 on error.

Files with a fixed path in a clone, such as a model's scorecard, are read from any path.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from engine import TecoInferError


def check(path: Path) -> int:
    """Check the cases of a file; the zoo around them is the folder ``zoo``."""
    from model_config.check import main

    words = ["--config", str(path), "--json", "check.json", "--jobs", "1", "--work-dir", "work", "--timeout", "20"]
    return main([*words, "--no-cache"], Path("zoo").absolute())


def scorecard(path: Path) -> int:
    """Read a scorecard, and write a copy with an additional entry."""
    from model_config.judge import scorecard as cards

    found = cards.read(path.parent, path.name)
    print(cards._digest(found), cards.stored_speed(path.parent, {"case": "one"}), len(found))
    return 0


def described(path: Path) -> int:
    """Read the ``zoo.yaml`` of a model."""
    from model_config.reports.described import read_described

    print(read_described(path.parent))
    return 0


def packages(path: Path) -> int:
    """Read a table of packages."""
    from utils.fetch.table import read_table

    print(len(read_table(path)))
    return 0


def data(path: Path) -> int:
    """Read the table of committed data."""
    from toolkit.data_page import sources

    print(len(sources(path.parent.parent)))
    return 0


def table(path: Path) -> int:
    """Read a support table."""
    from toolkit.ops.table import load_table

    print(len(load_table("sdaa", path).operators))
    return 0


READERS: dict[str, Callable[[Path], int]] = {
    one.__name__: one for one in (check, scorecard, described, packages, data, table)
}


def main() -> int:
    """Read the file of the command line."""
    try:
        return READERS[sys.argv[1]](Path(sys.argv[2]))
    except TecoInferError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
