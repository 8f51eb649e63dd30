"""A running ``teco serve`` for tests, and clients that are not ours: curl, and Python's HTTP client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from support import ROOT

SECONDS = 120
"""Timeout of everything, for busy machines."""

LOST = (
    r"engine process \d+ ended; it is replaced",
    r".*: its engine process ended while it opened the model \(signal 9\)",
    r"a replica was lost: .*",
)
"""What the server reports of a model when a test ends an engine process, or a replica of Ray."""


class Reply(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A running server; ``lines``: what it printed at its start."""

    process: subprocess.Popen[str]
    lines: list[str]
    http: int
    grpc: int

    def ask(
        self, path: str, body: bytes | str | dict[str, Any] | None = None, method: str | None = None, **headers: str
    ) -> Reply:
        """Send a request; underscores in names of headers stand for hyphens."""
        content = json.dumps(body) if isinstance(body, dict) else body
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=SECONDS)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method or ("GET" if content is None else "POST"), path, content, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())

    def children(self) -> list[int]:
        """Return the engine processes."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        found = " ".join((task / "children").read_text() for task in tasks.iterdir())
        return sorted(map(int, found.split()))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End the server by a signal; return its exit code and what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, err


def unexpected(err: str, warning: str = "") -> list[str]:
    """Return the lines of standard error that do not report the end of an engine process; else a server writes none.

    ``warning``: a pattern of another warning that the server is to write.
    """
    pattern = re.compile(rf"WARNING: model [\w.-]+: ({'|'.join(filter(None, (*LOST, warning)))})")
    return [line for line in err.splitlines() if not pattern.fullmatch(line)]


@contextlib.contextmanager
def serving(*words: object, grpc: bool = False, cwd: Path = ROOT, warning: str = "", **env: str) -> Iterator[Served]:
    """Start ``teco serve`` with free ports; end it after the block and check that it ended well."""
    ports = ["--http_port", "0", *(["--grpc_port", "0"] if grpc else [])]
    command = [sys.executable, "-m", "toolkit.cli", "serve", *map(str, words), *ports]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **env}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("serving "):
            break
    found = re.search(r"serving \w+://\S+:(\d+)(?:, grpc \S+:(\d+))?", lines[-1] if lines else "")
    if found is None:
        _, err = process.communicate(timeout=SECONDS)
        raise AssertionError(f"the server did not start (exit code {process.returncode}): {err}")
    server = Served(process, lines, int(found[1]), int(found[2] or 0))
    try:
        yield server
        if process.poll() is None:
            code, err = server.stop()
            assert (code, unexpected(err, warning)) == (0, []), err
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=SECONDS)


def tensor(name: str, array: Any, datatype: str = "FP32") -> dict[str, Any]:
    """Return an input in JSON."""
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "data": array.ravel().tolist()}
