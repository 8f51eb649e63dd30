"""An hour of requests of all kinds to a server: its memory may grow by at most 5 % after the first tenth.

The load is about half a core: what counts is the number of requests, not their rate. Exit code 1 if the memory grows
more, or a request fails.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tecoinfer_modelzoo.process.process_table import descendants, private_memory

MOST = 0.05
THREADS = 4
IMAGE = ROOT / "example/classification/digits/data/val/7/0081.png"
TENSOR = json.dumps({"inputs": [{"name": "input", "shape": [1, 3, 32, 32], "datatype": "FP32", "data": [0.5] * 3072}]})
REQUESTS = (
    ("/v2/models/digits/infer", TENSOR.encode(), "application/json"),
    ("/v2/models/digits/answer?rendering=true", IMAGE.read_bytes(), "image/png"),
    ("/v2/models/language_id/answer", b"the weather is fine today", "text/plain"),
    ("/v2/models/digits/infer", b"{", "application/json"),
    ("/v2/models/digits/answer", b"not an image", "image/png"),
)
"""Path, body and content type; the last two are refused."""


def asked(port: int, path: str, body: bytes, kind: str) -> int:
    """Return the status of the answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def load(port: int, end: float, interval: float, statuses: Counter[int]) -> None:
    """Send requests until the end, at most one per interval (seconds)."""
    number, due = 0, time.monotonic()
    while time.monotonic() < end:
        statuses[asked(port, *REQUESTS[number % len(REQUESTS)])] += 1
        number += 1
        due = max(due + interval, time.monotonic() - interval)
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    """Run the load, print the memory from time to time, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=40.0, help="most requests per second")
    args = parser.parse_args()
    seconds, interval = args.minutes * 60, THREADS / args.rate
    words = [sys.executable, "-m", "toolkit.cli", "serve", "digits", "language_id", "--http_port", "0"]
    server = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    line = next(line for line in server.stdout if line.startswith("serving"))
    port, start, statuses = int(line.rsplit(":", 1)[1]), time.monotonic(), Counter[int]()
    threads = [threading.Thread(target=load, args=(port, start + seconds, interval, statuses)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(seconds / 20)
        memory.append(private_memory([server.pid, *descendants(server.pid)], 0))
        print(
            f"{time.monotonic() - start:6.0f} s  {memory[-1] / 1e6:8.1f} MB  {sum(statuses.values())} requests",
            flush=True,
        )
    server.terminate()
    code = server.wait()
    growth = memory[-1] / memory[1] - 1
    print(f"answers by status: {dict(statuses)}; exit code {code}; growth {growth:.2%} (target: at most {MOST:.0%})")
    return int(growth > MOST or code != 0 or not set(statuses) <= {200, 400})


if __name__ == "__main__":
    sys.exit(main())
