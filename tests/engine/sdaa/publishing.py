"""Processes that publish the status of simulated devices, for the tests of status and teco-smi."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import ROOT

MB = 2**20

CHILD = """
import json, sys
from engine.sdaa.status import DeviceStatus, Publisher
publisher = Publisher()
for line in sys.stdin:  # each line: a list of devices to publish; the end of input ends the process normally
    publisher.publish([DeviceStatus(*device) for device in json.loads(line)], force=True)
    print("published", flush=True)
"""


class Child:
    """A process that publishes on demand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def publish(self, *devices: tuple[int, str, int, float]) -> None:
        import json

        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(devices) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "published\n"

    def kill(self) -> None:
        """Kill the process and leave it a zombie, as a busy parent would."""
        self.process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        """Let the process end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0


@contextmanager
def publishing(folder: Path) -> Iterator[Child]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TECO_SMI_DIR": str(folder)}
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()
