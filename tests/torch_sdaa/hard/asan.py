"""The hard checks with the extension built under AddressSanitizer: ``python -m tests.torch_sdaa.hard.asan [--json F]``.

torch itself is not instrumented, so this sees what the extension reads and writes, and the heap as both use it. Leaks
are not looked for (Python and torch keep much until the process ends); the checks look at the device's memory.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = "detect_leaks=0:abort_on_error=0:exitcode=99:alloc_dealloc_mismatch=0:handle_segv=1"
COMPILER = """#!/bin/sh
exec "{compiler}" "$@" -fsanitize=address -fno-omit-frame-pointer -g1 -O1
"""
UNSUITED = (
    "too_much_is_refused",  # the sanitizer's allocator keeps a shadow of such sizes
    "a_result_that_does_not_fit",
    "after_out_of_memory",
)


def library(compiler: str, name: str) -> str:
    """Return the path of a library of the compiler, "" if it has none."""
    done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = done.stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) and os.path.exists(path) else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile, run one order of the checks, and return its exit code; 2 if the compiler cannot."""
    words = list(sys.argv[1:] if argv is None else argv)
    compiler = os.environ.get("CXX", "g++")
    sanitizer, standard = library(compiler, "libasan.so"), library(compiler, "libstdc++.so.6")
    if not (sanitizer and standard):
        print(f"{compiler} has no AddressSanitizer; install GCC's libasan, or set CXX", file=sys.stderr)
        return 2
    # A cache of its own: the plain build's key does not tell the sanitized one from it.
    cache = Path(os.environ.get("TECO_CACHE_DIR") or Path.home() / ".cache" / "tecoinfer", "asan")
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder, "g++")
        wrapper.write_text(COMPILER.format(compiler=compiler))
        wrapper.chmod(0o755)
        settings = {**os.environ, "CXX": str(wrapper), "TECO_CACHE_DIR": str(cache), "ASAN_OPTIONS": OPTIONS}
        # This compiles; loading what was compiled then fails, as the sanitizer must be loaded first.
        build = [sys.executable, "-c", "import torch_sdaa"]
        subprocess.run(build, cwd=ROOT, env=settings, check=False, capture_output=True)
        # The standard library too, or the sanitizer cannot find what throws C++ exceptions.
        settings["LD_PRELOAD"] = f"{sanitizer}:{standard}"
        command = [sys.executable, "-m", "tests.torch_sdaa.hard", "--leave-out", ",".join(UNSUITED), *words]
        return subprocess.run(command, cwd=ROOT, env=settings, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
