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
from serve.batching.queue import TRIES

pytestmark = [pytest.mark.slow, pytest.mark.long]
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

ROUNDS, THREADS, WORKERS = 20, 6, 2


def value(server: Served, name: str) -> float:
    """Return a metric of the only model."""
    lines = server.ask("/metrics").body.decode().splitlines()
    return next(float(one.split()[-1]) for one in lines if one.startswith(f"{name}{{"))


def killed(server: Served, before: set[int]) -> int:
    """Kill an engine process when all of them take calls; return it. ``before``: processes that were killed already,
    which may not have ended yet on a busy machine."""
    while value(server, "teco_workers") < WORKERS or not set(server.children()) - before:
        time.sleep(0.02)
    pid = min(set(server.children()) - before)
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.parametrize("rounds", [3, ROUNDS])
def test_nothing_accepted_is_lost_when_processes_are_killed(rounds: int) -> None:
    """Kills under load: every request gets the bits of the engine."""
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

    with serving("digits", "--timeout", "120", "--max_queue", "100", "--workers", WORKERS) as server:
        threads = [threading.Thread(target=load, args=(server, place), daemon=True) for place in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            ended_pids: set[int] = set()
            for _ in range(rounds):
                before = sum(counts)
                while sum(counts) < before + 5:
                    time.sleep(0.005)
                ended_pids.add(killed(server, ended_pids))
            while value(server, "teco_replaced_workers") < rounds:
                time.sleep(0.05)
        finally:
            ended.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert sum(counts) > 5 * rounds
        assert value(server, "teco_replaced_workers") == rounds
        assert len(server.children()) == WORKERS


def same(data: list[float], expected: Array) -> bool:
    return np.array(data, np.float32).tobytes() == expected.tobytes()


def test_a_request_that_ends_its_process_every_time_is_answered(slow_model: Path) -> None:
    """It is tried again, and the third loss is an error; other requests are answered."""
    body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
    found: list[int] = []

    def ask() -> None:
        found.append(server.ask("/v2/models/slow/infer", body).status)

    with serving(f"slow={slow_model}", "--timeout", "120") as server:
        while 500 not in found:  # a request may also be answered before its process is killed
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            time.sleep(0.02)
            for _ in range(TRIES):
                while value(server, "teco_workers") < 1 or value(server, "teco_queue_length") > 0:
                    time.sleep(0.005)
                (pid,) = server.children()
                os.kill(pid, signal.SIGKILL)
                gone(pid)
            thread.join()
        assert set(found) <= {200, 500}
        assert server.ask("/v2/models/slow/infer", body).status == 200


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    while True:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
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
    with serving(f"mine={file}", warning=r"model file .*model\.onnx does not exist; .*") as server:
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
