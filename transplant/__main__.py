"""``python -m transplant``: the command ``teco transplant``."""

from __future__ import annotations

import sys

from tecoinfer_modelzoo.commands import teco


def main() -> int | None:
    """Run ``teco transplant`` with this process's arguments."""
    sys.argv[:] = ["teco", "transplant", *sys.argv[1:]]
    return teco()


if __name__ == "__main__":
    sys.exit(main())
