"""``python -m engine``: versions of every component, the targets available, and what to install for the others."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence

from engine.host.installed import banner, report
from engine.host.version_flag import add_version
from tecoinfer_modelzoo.streams import Standing, fill_closed


def main(argv: Sequence[str] | None = None) -> int:
    """Print the banner; return exit code 0, or 2 if the output cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    add_version(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    as_object = parser.parse_args(argv).json
    shown = report()
    fill_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an environment variable may hold any bytes
    with Standing() as output:
        output.write(json.dumps(shown, indent=2) + "\n" if as_object else banner(shown))
        return output.exit_code(0, lambda text: sys.stderr.write(f"{text}\n"))


if __name__ == "__main__":
    sys.exit(main())
