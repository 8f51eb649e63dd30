"""Scripts run on third-party engines, each in a fork of one process: starting each separately takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from support import ROOT

LAUNCHER = """
import json, os, runpy, sys, tempfile
import numpy, onnx, engine, engine.backends.null, utils.pipeline.cli, utils.pipeline.valid, utils.pipeline.answers
import utils.tasks.classification.task
found = []
for words in json.load(sys.stdin):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
            code = 0
            try:
                if words[0].endswith(".py"):
                    runpy.run_path(words[0], run_name="__main__")
                else:
                    sys.path[0] = os.getcwd()
                    sys.argv = words
                    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                sys.excepthook(*sys.exc_info())
                code = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
        status = os.waitpid(child, 0)[1]
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
        found.append([os.waitstatus_to_exitcode(status), *texts])
json.dump(found, sys.stdout)
"""


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def installed(folder: Path, targets: Iterable[str]) -> Path:
    """Write what pip leaves of a package whose engines these are; return the folder, which is to be on the path."""
    info = folder / "teco_vendor-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teco-vendor\nVersion: 1.2\n")
    rows = "".join(f"{target} = tests.fuzz.makers.odd_engines:{target}\n" for target in targets)
    (info / "entry_points.txt").write_text(f"[tecoinfer.engines]\n{rows}")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process that finds an installed package and its engines."""
    path = os.pathsep.join(map(str, (ROOT, folder)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "ORT_DISABLE_TELEMETRY": "1"}


def run_all(folder: Path, commands: Sequence[Sequence[str]]) -> list[Ran]:
    """Run commands of the zoo one after another, where :func:`installed` wrote a package."""
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER],
        cwd=ROOT,
        input=json.dumps([list(words) for words in commands]),
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
    )
    return [Ran(*one) for one in json.loads(done.stdout)]
