"""A Ray cluster on this machine for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from support import ROOT

CLUSTER = """
import ray, sys
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="error", object_store_memory=2**27)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def ray_settings() -> Iterator[dict[str, str]]:
    """Return an environment with Ray's files in a test folder with a short path, for its sockets."""
    folder = tempfile.mkdtemp(prefix="ray-")
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": folder,
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
    }
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ray_cluster(settings: dict[str, str]) -> Iterator[dict[str, str]]:
    """Start a cluster of 3 cores and return the environment in which it is joined."""
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(command, env=settings, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield {**settings, "RAY_ADDRESS": process.stdout.readline().strip()}
        process.stdin.close()
