#!/usr/bin/env python3
"""Execute the notebooks of this folder: write them with their outputs, compare these with the stored ones, or only run.

What differs from run to run is not written: times, versions and names of kernels. An output must not have a path of
this computer, and a notebook has at most 200 kB. Needs the extra `notebooks`.
Exit codes: 0 written, the outputs are the stored ones, or all cells ran; 1 a cell failed or an output is wrong; 2
nothing was run.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LARGEST = 200_000
"""Bytes of a notebook with its outputs."""

TIMEOUT = 900
"""Seconds of a cell."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Execute the notebooks, print a line for each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="default: all of this folder")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="write nothing; compare with the stored outputs")
    what.add_argument("--run", action="store_true", help="write nothing; only a cell that raises is a failure")
    args = parser.parse_args(argv)
    try:
        import nbclient  # noqa: F401
        import nbformat
    except ImportError as error:
        print(f'error: {error.name} is missing; run: pip install -c constraints.txt -e ".[notebooks]"', file=sys.stderr)
        return 2
    files = args.notebooks or sorted(HERE.glob("*.ipynb"))
    if missing := [file for file in files if not file.is_file()]:
        print(f"error: {missing[0]} does not exist; check the path", file=sys.stderr)
        return 2
    failed, done = False, "ran" if args.run else "the same" if args.check else "written"
    for file in files:
        stored = nbformat.read(file, as_version=4)
        made = nbformat.from_dict(stored)
        problems = _execute(made) or ([] if args.run else [*_wrong(made, nbformat.writes(made))])
        if args.check:
            problems += [] if problems else [*_different(stored, made)]
        elif not args.run and not problems:
            nbformat.write(made, file)
        for problem in problems:
            print(f"{file.name}: {problem}", file=sys.stderr)
        failed |= bool(problems)
        print(f"{file.name}: {'failed' if problems else done}")
    return int(failed)


def _execute(notebook: Any) -> list[str]:
    """Execute all cells in place; return the reason if one fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from traitlets.config import Config

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    os.environ["PYTHONWARNINGS"] = "ignore::DeprecationWarning"  # those of Jupyter's own packages
    with tempfile.TemporaryDirectory(prefix="kernel") as folder:
        # The kernel listens at sockets of this folder instead of open ports, where the system has such sockets.
        address = {"transport": "ipc", "ip": str(Path(folder, "socket"))} if os.name == "posix" else {}
        place = {"metadata": {"path": str(HERE)}}
        settings = {"timeout": TIMEOUT, "kernel_name": "python3", "record_timing": False, "resources": place}
        client = NotebookClient(notebook, config=Config(KernelManager=address), **settings)
        # What a kernel writes when it is ended, such as a failed assertion of libzmq, says nothing about a cell.
        with Path(folder, "stderr").open("w+", encoding="utf-8", errors="replace") as written:
            try:
                asyncio.run(client.async_execute(stderr=written))
            except CellExecutionError as error:
                return [f"cell {_number(notebook)}: {error.ename}: {error.evalue}"]
            except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
                written.seek(0)
                last = written.read().strip().rpartition("\n")[2]
                return [f"cell {_number(notebook)}: {' '.join(f'{error} {last}'.split())[:200]}"]
    _clean(notebook)
    return []


def _number(notebook: Any) -> int:
    """Return the number of the last code cell that was started."""
    return max((cell.execution_count or 0 for cell in _code(notebook)), default=0)


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _clean(notebook: Any) -> None:
    """Leave out what says when and where a notebook was executed; join the pieces of printed text."""
    from nbformat import from_dict

    notebook.metadata = from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = from_dict({}), f"cell-{number:02}"
    for cell in _code(notebook):
        outputs: list[Any] = []
        for output in cell.outputs:
            if (
                outputs
                and output.output_type == outputs[-1].output_type == "stream"
                and output.name == outputs[-1].name
            ):
                outputs[-1].text += output.text
                continue
            output.pop("transient", None)
            if "metadata" in output:
                output.metadata = from_dict({})
            outputs.append(output)
        cell.outputs = outputs


def _wrong(notebook: Any, text: str) -> Iterator[str]:
    """Yield what must not be committed."""
    if len(text.encode()) > LARGEST:
        yield f"{len(text.encode())} bytes, more than {LARGEST}; show less"
    own = {str(ROOT), str(Path.home()), tempfile.gettempdir(), sys.prefix}
    for number, cell in enumerate(_code(notebook), 1):
        printed = _text(cell)
        for path in sorted(path for path in own if path != "/" and f"{path}/" in printed):
            yield f"cell {number}: its output has the path {path} of this computer; print a relative one"
        for output in cell.outputs:
            if output.output_type == "stream" and output.name == "stderr":
                yield f"cell {number}: it writes to standard error: {' '.join(output.text.split())[:200]}"


def _text(cell: Any) -> str:
    """Return the outputs of a cell as text; of an image its type, since its bytes depend on versions of libraries."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type == "error":
            parts.append(f"{output.ename}: {output.evalue}\n")
        else:
            images = sorted(kind for kind in output.data if kind.startswith("image/"))
            parts.append("".join(f"({kind})\n" for kind in images) or f"{output.data.get('text/plain', '')}\n")
    return "".join(parts)


def _different(stored: Any, made: Any) -> Iterator[str]:
    """Yield the differences of the outputs as lines of a diff."""
    for number, (old, new) in enumerate(zip(_code(stored), _code(made), strict=True), 1):
        lines = (_text(cell).splitlines() for cell in (old, new))
        for line in difflib.unified_diff(*lines, "stored", "made", lineterm="", n=0):
            yield f"cell {number}: {line}"


if __name__ == "__main__":
    sys.exit(main())
