"""``teco-smi`` shows another training process while it runs, and not after it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torch_sdaa  # noqa: F401 -- compiles the extension where the cache has none
from engine.sdaa.status import ProcessStatus, read_all

TRAIN = """
import sys, time, torch, torch_sdaa
from torch_sdaa.reports import publish
assert not publish.is_on()
x = torch.ones(1 << 20, device="sdaa:1")
assert publish.is_on()
import os
child = os.fork()
if not child:
    assert not publish.is_on()
    try:
        x.add_(1)
    except RuntimeError as error:
        os._exit(0 if "forked process" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
print("ready", flush=True)
until = time.monotonic() + 20
while not os.path.exists(sys.argv[1]) and time.monotonic() < until:
    x.add_(1)
"""


def _wait_for(pid: int) -> ProcessStatus:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = [process for process in read_all() if process.pid == pid]
        if found and found[0].devices and found[0].devices[0].utilisation > 0:
            return found[0]
        time.sleep(0.1)
    raise AssertionError("teco-smi never saw the process")


CACHE = str(Path(str(sys.modules["_sdaa"].__file__)).parents[1])
"""The extension's folder; a test's own cache folder is empty."""


@pytest.mark.slow
def test_a_training_process_is_shown_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", CACHE)
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path / "smi"))
    monkeypatch.setenv("SDAA_VISIBLE_DEVICES", "2,3")
    stop = tmp_path / "stop"
    command = [sys.executable, "-c", TRAIN, str(stop)]
    with subprocess.Popen(
        command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as training:
        assert training.stdout is not None
        assert training.stderr is not None
        assert training.stdout.readline() == "ready\n"
        (device,) = _wait_for(training.pid).devices
        assert (device.index, device.health, device.memory_used) == (3, "OK", 4 << 20)
        assert 0 < device.utilisation <= 1
        assert 0 < device.host_busy <= 1
        stop.touch()
        assert training.wait(30) == 0, training.stderr.read()
        assert training.stderr.read() == ""
    assert [process for process in read_all() if process.pid == training.pid] == []
    assert list((tmp_path / "smi").iterdir()) == []


@pytest.mark.slow
def test_a_process_without_a_device_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", CACHE)
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path))
    code = (
        "import torch, torch_sdaa; torch.ones(3).sum()\n"
        "from torch_sdaa.reports import publish\n"
        "assert not publish.is_on()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert list(tmp_path.iterdir()) == []
