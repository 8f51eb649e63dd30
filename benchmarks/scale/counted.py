"""Run a valid script, and count its look-ups of files below a folder: ``counted.py STATS.json FOLDER SCRIPT [flags]``.

Opening and listing raise audit events of Python, which no library can go around; ``os.stat`` raises none, so it is
wrapped. The counts, the peak of resident memory, and the seconds until the first file is opened are written as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import runpy
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> None:
    """Count during the script; its flags begin at the fourth argument."""
    stats, folder, script = sys.argv[1:4]
    began = time.perf_counter()
    seen: dict[str, Any] = {"calls": Counter(), "first_open_s": None, "first_open_cpu_s": None, "first_open_mb": None}
    plain = os.stat

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.listdir", "os.scandir") or not arguments or not _below(arguments[0], folder):
            return
        if event == "open" and seen["first_open_s"] is None:
            seen["first_open_s"], seen["first_open_cpu_s"] = time.perf_counter() - began, time.process_time()
            seen["first_open_mb"] = peak_mb()
        seen["calls"][event] += 1

    def counted(path: Any, *rest: Any, **named: Any) -> os.stat_result:
        seen["calls"]["stat"] += _below(path, folder)
        return plain(path, *rest, **named)

    def write() -> None:
        found = seen | {"calls": dict(seen["calls"]), "peak_mb": peak_mb(), "seconds": time.perf_counter() - began}
        Path(stats).write_text(json.dumps(found | {"cpu_s": time.process_time()}), encoding="utf-8")

    sys.addaudithook(audited)
    os.stat = counted
    atexit.register(write)
    sys.argv = [script, *sys.argv[4:]]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


def _below(path: object, folder: str) -> bool:
    return isinstance(path, (str, os.PathLike)) and str(os.fspath(path)).startswith(folder)


def peak_mb() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
