"""Run commands, and draw what they print on a terminal as an SVG file.

The README's images are made by these commands, in the root of a clone with the extra ``check`` and PyTorch::

    python docs/images/terminal.py docs/images/terminal.svg \\
        "python example/detection/digit_detector/example_single_batch.py --target onnx --save drawn" \\
        "teco check digit_detector"
    cp drawn/0300.png docs/images/answer.png

Each command runs on a pseudo-terminal, and every line of the image is a line that it printed. A POSIX system is needed.
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
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROWS = 50
"""Height of the terminal that the commands see, in lines."""

FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the commands and write the image; a command that fails ends the program with its output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the SVG file to write")
    parser.add_argument("command", nargs="+", help="a command as one word; it runs without a shell")
    parser.add_argument("--columns", type=int, default=106, help="width of the terminal in characters (default: 106)")
    args = parser.parse_args(argv)
    console = Console(record=True, width=args.columns, file=io.StringIO(), force_terminal=True)
    for number, command in enumerate(args.command):
        console.print("\n" * bool(number), Text.assemble(("$ ", "bold green"), (command, "bold")), sep="")
        console.print(Text.from_ansi(printed(command, args.columns)))
    args.out.write_text(image(console), encoding="utf-8")


def printed(command: str, columns: int) -> str:
    """Return what a command prints on a terminal, with its colours. Raises SystemExit if the command fails."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    streams = {"stdin": subprocess.DEVNULL, "stdout": follower, "stderr": follower}
    output = b""
    with subprocess.Popen(shlex.split(command), env=environment, **streams) as process:
        os.close(follower)
        while part := _read(leader):
            output += part
    os.close(leader)
    text = output.decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    if process.returncode:
        sys.exit(f"{text}\n{command} ended with exit code {process.returncode}")
    return text


def _read(leader: int) -> bytes:
    """Return what was printed, or nothing at the end, which Linux reports as an error."""
    try:
        return os.read(leader, 65536)
    except OSError:
        return b""


def image(console: Console) -> str:
    """Return what was recorded as SVG, in fonts of the reader's system: a page may not load others."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="tecoinfer-modelzoo"), flags=re.DOTALL)
    return re.sub(r"font-family: Fira Code, monospace", f"font-family: {FONTS}", svg)


if __name__ == "__main__":
    main()
