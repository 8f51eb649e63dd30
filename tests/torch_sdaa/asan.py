"""The hard checks with the extension built under AddressSanitizer: ``python -m tests.torch_sdaa.asan [--json F]``.

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

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = "detect_leaks=0:abort_on_error=0:exitcode=99:alloc_dealloc_mismatch=0:handle_segv=1"
COMPILER = """#!/bin/sh
exec "{compiler}" "$@" -fsanitize=address -fno-omit-frame-pointer -g1 -O1
"""
UNSUITED = (
    "too_much_is_refused",  # the sanitizer's allocator keeps a shadow of such sizes
    "a_result_that_does_not_fit",
    "after_out_of_memory",
)


def library(compiler: str) -> str:
    """Return the path of the compiler's AddressSanitizer; empty where it has none."""
    told = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = told.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile, run one order of the checks, and return its exit code; 2 where the compiler cannot."""
    words = list(sys.argv[1:] if argv is None else argv)
    compiler = os.environ.get("CXX", "g++")
    sanitizer = library(compiler)
    if not sanitizer:
        print(f"{compiler} has no AddressSanitizer; install GCC's libasan, or set CXX", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Path(folder, "g++")
        wrapper.write_text(COMPILER.format(compiler=compiler))
        wrapper.chmod(0o755)
        # a cache of its own: the plain build's key does not tell the sanitized one from it
        settings = {"CXX": str(wrapper), "TECO_CACHE_DIR": folder, "LD_PRELOAD": sanitizer, "ASAN_OPTIONS": OPTIONS}
        compiled = {**os.environ, **settings, "LD_PRELOAD": ""}
        build = [sys.executable, "-c", "from torch_sdaa import build; import torch; build.load()"]
        # the fresh import of the compiled file needs the preload; compiling does not, and would be slowed by it
        subprocess.run(build, cwd=ROOT, env=compiled, check=False, capture_output=True)
        command = [sys.executable, "-m", "tests.torch_sdaa.hard", "--leave-out", ",".join(UNSUITED), *words]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
