"""``python -m engine``: versions of every component, the targets available, and what to install for the others."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.host.installed import banner, report
from engine.host.version_flag import add_version
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag
from tecoinfer_modelzoo.streams import Standing, fill_closed


def main(argv: Sequence[str] | None = None) -> int:
    """Print the banner; return exit code 0, or 2 if the output cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    add_version(parser)
    add_json_flag(parser)
    path = parser.parse_args(argv).json
    shown = report()
    fill_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an environment variable may hold any bytes
    with Standing() as output:
        text = json.dumps(shown, indent=2) + "\n"
        output.write(text if path == STDOUT else banner(shown))
        if path not in (None, STDOUT) and not _written(path, text):
            return 2
        return output.exit_code(0, lambda text: sys.stderr.write(f"{text}\n"))


def _written(path: Path, text: str) -> bool:
    try:
        write_file(path, text.encode())
    except OSError as error:
        sys.stderr.write(f"error: {path} cannot be written: {error.strerror}; choose another --json\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
