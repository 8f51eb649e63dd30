"""The load clients of ``docs/how-to/serving.md``, where they are installed: no request fails."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from served import SECONDS, Served, serving
from support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

PAGE = (ROOT / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")


def loaded(server: Served, name: str, folder: Path) -> str:
    """Run the command of the page that begins with a name, for a short time; return what it prints."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is missing")
    (command,) = re.findall(rf"^{name} .*$", PAGE, re.MULTILINE)
    command = command.replace("127.0.0.1:8000", f"127.0.0.1:{server.http}").replace("-d10s", "-d2s")
    words = [str(ROOT / word) if word.startswith("benchmarks/") else word for word in shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_wrk(tmp_path: Path) -> None:
    with serving("digits") as server:
        printed = loaded(server, "wrk", tmp_path)
    assert "Non-2xx" not in printed
    assert "Socket errors" not in printed
    assert int(re.findall(r"(\d+) requests in", printed)[0]) > 0


def test_locust(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(from locust import .*?)```", PAGE, re.DOTALL)
    (tmp_path / "locustfile.py").write_text(code, encoding="utf-8")
    with serving("digits") as server:
        printed = loaded(server, "locust", tmp_path)
    (failed,) = re.findall(r"Aggregated +\d+ +(\d+)\(", printed)[:1]
    assert failed == "0"
