"""The process in which rows run: row names as JSON lines on stdin, what comes of them as JSON lines on stdout.

What a library prints goes to stderr, so that stdout holds nothing but results. A crash ends this process only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    """Run what is asked for until stdin ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as results:
        os.dup2(2, 1)

        def tell(**message: Any) -> None:
            results.write(json.dumps(message) + "\n")
            results.flush()

        import torch

        from sweep.families import row_named
        from sweep.work import run_row

        torch.set_num_threads(1)
        for line in sys.stdin:
            asked = json.loads(line)
            for name, outcome in run_row(row_named(asked["row"]), asked["done"]):
                if outcome is None:
                    tell(start=name)
                else:
                    tell(outcome=outcome.as_json())
            tell(finished=asked["row"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
