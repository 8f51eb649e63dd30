"""Write the zoo's operator table from the device of this process: ``python -m toolkit.training.operators``."""

from __future__ import annotations

import sys

from toolkit.training.operators.device import live_table
from toolkit.training.operators.table import STORED, yaml_text


def main() -> None:
    """Write the table and print its path."""
    table = live_table()
    STORED.write_text(yaml_text(table), encoding="utf-8")
    sys.stdout.write(f"written: {STORED} ({len(table.levels)} operators of torch {table.torch})\n")


if __name__ == "__main__":
    main()
