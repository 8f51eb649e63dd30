"""Run commands and draw what they print as a film of a terminal, an SVG file.

The README's image is made by::

    python docs/images/terminal.py docs/images/terminal.svg \
        "python example/detection/digit_detector/example_valid.py --target sdaa" "teco check digit_detector"

Each command runs on a pseudo-terminal with colours. Every line of the image is a line that the command printed; it appears in
the order and at the pace of the run, scaled to ``--seconds``, and then stays. A viewer without animations shows all lines.
Needs rich (extra ``check``) and a POSIX system.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text

ROWS = 50
"""Height of the terminal that the commands see, in lines."""

TYPING = 0.7
"""Seconds of the film between a command and its first line."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the commands and write the image; exit with the code of a command that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the SVG file to write")
    parser.add_argument("command", nargs="+", help="a command as one word; it runs without a shell")
    parser.add_argument("--columns", type=int, default=110, help="width of the terminal in characters (default: 110)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the film (default: 5)")
    args = parser.parse_args(argv)
    lines: list[tuple[float, Text]] = []
    for command in args.command:
        start = lines[-1][0] if lines else 0.0
        lines.append((start, Text.assemble(("$ ", "bold green"), (command, "bold"))))
        lines += [(start + when, line) for when, line in printed(command, args.columns)]
        lines.append((lines[-1][0], Text("")))
    args.out.write_text(film(lines[:-1], args.columns, args.seconds), encoding="utf-8")


def printed(command: str, columns: int) -> Iterator[tuple[float, Text]]:
    """Run a command; yield its lines with the seconds from its start at which each was complete.

    Raises SystemExit with the exit code and the output of a command that fails.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    begin, output, decoder = time.monotonic(), b"", AnsiDecoder()
    with subprocess.Popen(
        shlex.split(command), stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        while part := _read(leader):
            output += part
            *complete, output = output.split(b"\n")
            for line in complete:
                yield time.monotonic() - begin, decoder.decode_line(line.decode(errors="replace").rstrip("\r"))
    os.close(leader)
    if process.returncode:
        sys.exit(f"{command} ended with exit code {process.returncode}")


def _read(leader: int) -> bytes:
    """Return what was printed, or nothing at the end, which Linux reports as an error."""
    try:
        return os.read(leader, 65536)
    except OSError:
        return b""


def film(lines: Sequence[tuple[float, Text]], columns: int, seconds: float) -> str:
    """Return the SVG of lines that appear one after the other.

    Args:
        lines: each with its time in seconds, in order. columns: width of the terminal. seconds: of the last line.
    """
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    whole, begins = lines[-1][0] or 1.0, []
    for when, line in lines:
        rows = line.wrap(console, columns)
        begins += [TYPING + when / whole * (seconds - TYPING)] * len(rows)
        for row in rows:
            console.print(row, no_wrap=True, overflow="crop")
    begins[0] = 0.0
    svg = console.export_svg(title="tecoinfer-modelzoo")
    rules = [
        f'[clip-path$="line-{number})"] {{ animation: appear 0.01s {begin:.2f}s both }}'
        for number, begin in enumerate(begins)
    ]
    style = "\n".join(["@keyframes appear { from { opacity: 0 } to { opacity: 1 } }", *rules])
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # fonts of another host, which a page may not load
    return svg.replace("</style>", f"@media (prefers-reduced-motion: no-preference) {{\n{style}\n}}\n</style>", 1)


if __name__ == "__main__":
    main()
