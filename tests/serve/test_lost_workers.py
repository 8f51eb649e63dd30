"""Engine processes that are killed are replaced, and no accepted request is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from served import Served, serving, tensor
from support import DIGITS

from engine import Array, EngineSpec, open_engine

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

ROUNDS = 20
THREADS = 8


def killed(server: Served) -> None:
    """Kill one engine process as soon as there is one, and wait until another takes its place."""
    while not (pids := server.children()):
        time.sleep(0.01)
    os.kill(pids[0], signal.SIGKILL)
    while pids[0] in server.children():
        time.sleep(0.01)


def test_nothing_accepted_is_lost_when_processes_are_killed(tmp_path: Path) -> None:
    """Twenty kills under load: every request gets the bits of the engine."""
    images = np.random.default_rng(2).random((16, 1, 3, 32, 32)).astype(np.float32)
    with open_engine("onnx", EngineSpec(ckpt=DIGITS / "digits_dyn.onnx")) as engine:
        expected = [np.asarray(engine(image)) for image in images]
    bodies = [{"inputs": [tensor("input", image)]} for image in images]
    wrong: list[str] = []
    counts = [0] * THREADS
    ended = threading.Event()

    def load(server: Served, place: int) -> None:
        number = place
        while not ended.is_set():
            number = (number + 1) % len(images)
            found = server.ask("/v2/models/digits/infer", bodies[number])
            if found.status != 200:
                wrong.append(found.body.decode())
            elif not same(found.json["outputs"][0]["data"], expected[number]):
                wrong.append("other bits")
            counts[place] += 1

    with serving("digits", "--timeout", "120", "--max_queue", "100", "--workers", "2") as server:
        threads = [threading.Thread(target=load, args=(server, place)) for place in range(THREADS)]
        for thread in threads:
            thread.start()
        for number in range(ROUNDS):
            before = sum(counts)
            while sum(counts) < before + 5:
                time.sleep(0.005)
            killed(server)
            assert server.process.poll() is None, f"the server ended at kill {number}"
        while sum(counts) < before + 50:
            time.sleep(0.01)
        ended.set()
        for thread in threads:
            thread.join()
        text = server.ask("/metrics").body.decode()
        assert wrong == []
        while f'teco_replaced_workers{{model="digits"}} {ROUNDS}.0' not in text:
            time.sleep(0.05)
            text = server.ask("/metrics").body.decode()
        assert len(server.children()) == 2


def same(data: list[float], expected: Array) -> bool:
    return np.array(data, np.float32).tobytes() == expected.tobytes()


def test_a_request_that_ends_its_process_twice_is_answered(slow_model: Path) -> None:
    """The first loss is tried again, the second one is an error; other requests are answered."""
    body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
    found: list[int] = []
    with serving(f"slow={slow_model}", "--timeout", "120") as server:
        thread = threading.Thread(target=lambda: found.append(server.ask("/v2/models/slow/infer", body).status))
        while True:
            thread = threading.Thread(target=lambda: found.append(server.ask("/v2/models/slow/infer", body).status))
            thread.start()
            for _ in range(2):
                busy(server, thread)
                for pid in server.children():
                    os.kill(pid, signal.SIGKILL)
                    gone(pid)
            thread.join()
            if found[-1] == 500:
                break
            assert found[-1] == 200  # it was computed before the kill; again
        assert server.ask("/v2/models/slow/infer", body).status == 200


def busy(server: Served, thread: threading.Thread) -> None:
    """Wait until an engine process computes, by its processor time, or the request was answered."""
    while thread.is_alive():
        for pid in server.children():
            first = ticks(pid)
            time.sleep(0.05)
            if first is not None and "R" in state(pid):
                return


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def ticks(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
    except OSError:
        return None


def gone(pid: int) -> None:
    while state(pid) not in ("", "Z"):
        time.sleep(0.01)


def test_a_hanging_call_is_ended(slow_model: Path) -> None:
    """A call that exceeds its time is ended with its process; the next request finds a new one."""
    body = {"inputs": [tensor("x", np.ones((64, 4), np.float32))]}
    with serving(f"slow={slow_model}", "--call_timeout", "0.02") as server:
        (before,) = server.children()
        found = server.ask("/v2/models/slow/infer", body)
        assert (found.status, "0.02 s" in found.json["error"]) == (504, True)
        while before in server.children() or not server.children():
            time.sleep(0.01)
        assert server.ask("/v2/health/live").status == 200


def test_a_model_that_cannot_be_opened_again_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes((DIGITS / "digits_dyn.onnx").read_bytes())
    with serving(f"mine={file}") as server:
        file.unlink()
        (pid,) = server.children()
        os.kill(pid, signal.SIGKILL)
        while (
            server.ask("/v2/models/mine/ready").status == 200
            or server.ask("/v2/repository/index", b"").json[0]["state"] == "READY"
        ):
            time.sleep(0.05)
        body = {"inputs": [tensor("input", np.zeros((1, 3, 32, 32), np.float32))]}
        found = server.ask("/v2/models/mine/infer", body)
        assert (found.status, "mine" in found.json["error"]) == (503, True)
        assert server.ask("/v2/health/ready").status == 503
        assert server.ask("/v2/health/live").status == 200


def test_engine_processes_end_with_a_server_that_is_killed() -> None:
    with serving("digits") as server:
        (child,) = server.children()
        server.process.kill()
        server.process.wait()
        gone(child)
