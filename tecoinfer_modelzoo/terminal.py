"""Tables and lines for terminals and pipes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.formatting import NO_VALUE
from tecoinfer_modelzoo.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 10_000  # columns of an output that is not a terminal, so that tables are not truncated


def open_console(file: TextIO | None = None) -> Console:
    """Return a console, plain and not truncated outside a terminal; raise ConfigError without rich."""
    with extra("the table"):
        from rich.console import Console

    class Lasting(Console):
        """Console that survives a closed pipe; rich itself exits with code 1."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())  # for the rest of the buffers
            os.close(nowhere)

    file = file or getattr(sys.stdout, "bare", None)  # unfiltered, for colours; texts pass `encodable`
    console = Lasting(file=file, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        if os.environ.get("NO_COLOR"):  # for rich this excludes only colours, not bold
            return Lasting(file=file, highlight=False, emoji=False, markup=False, color_system=None)
        return console
    return Lasting(file=file, highlight=False, emoji=False, markup=False, width=_PIPE_WIDTH, color_system=None)


def has_colours(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that shows colours, and the user wants them.

    ``NO_COLOR`` (set and not empty, https://no-color.org) and ``TERM=dumb`` turn them off. The safe streams of a
    running command, which have the real one as ``bare``, would print the codes as text.
    """
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return wanted and stream is not None and not hasattr(stream, "bare") and stream.isatty()


def new_table(console: Console) -> Table:
    """Return an empty table with a bold header and a line below it, in characters of the console's encoding."""
    from rich.box import ASCII2, SIMPLE_HEAD
    from rich.table import Table

    box = SIMPLE_HEAD if _has_signs(console) else ASCII2
    return Table(box=box, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print a line and let the terminal wrap it."""
    console.print(encodable(line, console), style=style, soft_wrap=True)


def encodable(line: str, console: Console) -> str:
    """Return the line with unencodable characters escaped, so that printing cannot fail."""
    line = printable(line)
    line = line if _has_signs(console) else line.replace(NO_VALUE, "-").replace("−", "-")
    return line.encode(console.encoding, "backslashreplace").decode(console.encoding)


def _has_signs(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
