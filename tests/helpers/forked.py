"""Runs many scripts in forks of one process with NumPy and most of the zoo imported, which saves minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from support import ROOT

LAUNCHER = """
import importlib, json, os, re, runpy, sys, tempfile
sys.modules.update(dict.fromkeys(filter(None, sys.argv[1].split(","))))
import engine, tecoinfer_modelzoo.extra, utils.pipeline.cli, utils.pipeline.valid, utils.pipeline.answers
for script in sys.argv[2:]:
    for module in re.findall(r"^from (utils[.]tasks[.][.a-z_]+) import", open(script, encoding="utf-8").read(), re.M):
        importlib.import_module(module)
found = {}
for script in sys.argv[2:]:
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            sys.argv, sys.path[0] = [script, "--help"], os.path.dirname(os.path.abspath(script))
            code = 1
            try:
                runpy.run_path(script, run_name="__main__")
                code = 0
            except SystemExit as end:
                code = end.code or 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
        status = os.waitpid(child, 0)[1]
        out.seek(0)
        found[script] = os.waitstatus_to_exitcode(status), out.read().decode()
json.dump(found, sys.stdout)
"""


def helps(scripts: Sequence[str], missing: Sequence[str] = ()) -> dict[str, tuple[int, str]]:
    """Return exit code and output of each script with ``--help``, by its path from the root.

    Args:
        missing: modules that cannot be imported.
    """
    command = [sys.executable, "-c", LAUNCHER, ",".join(missing), *scripts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    return {script: (code, said) for script, (code, said) in json.loads(done.stdout).items()}
