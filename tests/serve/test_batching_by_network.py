"""Batches of requests: their bits, limits, priorities and times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Reply, Served, serving, tensor
from support import DIGITS, ROOT, SaveOnnx

from engine import EngineSpec, open_engine

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

DEPENDENT = "mixes (float[N, 4] x) => (float[N, 4] y) { y = Softmax <axis = 0> (x) }"


def together(calls: list[Callable[[], Reply]]) -> list[Reply]:
    """Make calls at the same time, each in a thread; return their replies in order."""
    found: dict[int, Reply] = {}
    threads = [
        threading.Thread(target=lambda i=i, call=call: found.update({i: call()})) for i, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[i] for i in range(len(calls))]


def value(server: Served, line: str) -> float:
    """Return a metric by the beginning of its line; 0 if it is missing."""
    lines = server.ask("/metrics").body.decode().splitlines()
    return next((float(one.split()[-1]) for one in lines if one.startswith(line)), 0.0)


@pytest.mark.parametrize(("target", "most"), [("onnx", 32), ("onnx", 5), ("cpu", 16), ("sdaa", 16)])
def test_batched_answers_have_the_bits_of_single_ones(target: str, most: int) -> None:
    images = np.random.default_rng(3).random((48, 1, 3, 32, 32)).astype(np.float32)
    with open_engine(target, EngineSpec(ckpt=DIGITS / "digits_dyn.onnx", batch_size=most, dtype="float32")) as engine:
        expected = [np.asarray(engine(image)).tobytes() for image in images]
    with serving(
        f"raw={DIGITS / 'digits_dyn.onnx'}",
        "--target",
        target,
        "--dtype",
        "float32",
        "--max_batch",
        most,
        "--queue_delay",
        5,
    ) as server:
        for _ in range(4):
            calls = [
                lambda image=image: server.ask("/v2/models/raw/infer", {"inputs": [tensor("input", image)]})
                for image in images
            ]
            found = [np.array(one.json["outputs"][0]["data"], np.float32).tobytes() for one in together(calls)]
            assert found == expected
        assert value(server, 'teco_batch_rows_count{model="raw"}') < 4 * len(images)


def test_rows_that_depend_on_one_another_are_not_batched(save_onnx: SaveOnnx) -> None:
    file = save_onnx(DEPENDENT, "mixes.onnx")
    rows = np.random.default_rng(1).random((12, 1, 4)).astype(np.float32)
    with serving(f"mixes={file}", "--queue_delay", 50) as server:
        about = server.ask("/v2/models/mixes").json["parameters"]
        assert (about["batching"], "Softmax" in about["not_batched"]) == (False, True)
        found = together(
            [lambda row=row: server.ask("/v2/models/mixes/infer", {"inputs": [tensor("x", row)]}) for row in rows]
        )
        assert [one.json["outputs"][0]["data"] for one in found] == [[1.0] * 4] * 12
        pair = server.ask("/v2/models/mixes/infer", {"inputs": [tensor("x", rows[:2, 0])]}).json["outputs"][0]["data"]
        assert np.allclose(np.array(pair).reshape(2, 4).sum(axis=0), 1)
        assert value(server, 'teco_batch_rows_count{model="mixes"}') == 13


def test_a_delay_fills_batches(slow_model: Path) -> None:
    body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
    with serving(f"slow={slow_model}", "--queue_delay", 60_000, "--max_batch", 4) as server:
        assert {one.status for one in together([lambda: server.ask("/v2/models/slow/infer", body)] * 8)} == {200}
        assert value(server, 'teco_batch_rows_count{model="slow"}') == 2


def test_a_full_queue_refuses(slow_model: Path) -> None:
    body = {"inputs": [tensor("x", np.ones((1, 4), np.float32))]}
    with serving(f"slow={slow_model}", "--max_queue", 2, "--max_batch", 1) as server:
        found = together([lambda: server.ask("/v2/models/slow/infer", body)] * 16)
        codes = sorted({one.status for one in found})
        assert codes == [200, 429]
        refused = next(one for one in found if one.status == 429)
        assert (refused.headers["retry-after"], "\n" in refused.json["error"]) == ("1", False)
        assert server.ask("/v2/models/slow/infer", body).status == 200


def test_a_request_may_limit_its_time(slow_model: Path) -> None:
    body: dict[str, Any] = {"inputs": [tensor("x", np.ones((1, 4), np.float32))], "parameters": {"timeout": 1}}
    with serving(f"slow={slow_model}") as server:
        found = server.ask("/v2/models/slow/infer", body)
        assert (found.status, "\n" in found.json["error"]) == (504, False)
        del body["parameters"]
        assert server.ask("/v2/models/slow/infer", body).status == 200


def test_urgent_requests_are_served_first(slow_model: Path, tmp_path: Path) -> None:
    """While one request is computed, others wait; then they are served by priority."""
    log = tmp_path / "log"

    def body(priority: int) -> dict[str, Any]:
        return {"inputs": [tensor("x", np.ones((1, 4), np.float32))], "parameters": {"priority": priority}}

    with serving(f"slow={slow_model}", "--max_batch", 1, "--access_log", log) as server:
        orders: list[list[int] | None] = []

        def ask(priority: int) -> Reply:
            return server.ask("/v2/models/slow/infer", body(priority))

        while not orders or orders[-1] is None:  # until all were in the queue at the same time
            found: list[int] = []
            threads = [
                threading.Thread(target=lambda p, done: (ask(p), done.append(p)), args=(priority, found))
                for priority in (1, 9, 8, 0, 7, 2, 3)
            ]
            first, *others = threads
            first.start()
            time.sleep(0.02)
            for thread in others:
                thread.start()
            is_complete = False
            while any(thread.is_alive() for thread in others) and not is_complete:
                is_complete = value(server, 'teco_queue_length{model="slow"}') >= 5
            for thread in threads:
                thread.join()
            orders.append(found[2:] if is_complete else None)
        assert orders[-1] is not None
        assert orders[-1] == sorted(orders[-1], key=lambda p: p or 1 << 20)


def test_answers_of_samples_are_batched_too() -> None:
    image = (DIGITS / "data/val/7/0081.png").read_bytes()
    kind = {"content_type": "image/png"}
    with serving("digits", "--queue_delay", 100) as server:
        single = server.ask("/v2/models/digits/answer", image, **kind).json["answers"]
        found = together([lambda: server.ask("/v2/models/digits/answer", image, **kind)] * 12)
        assert [one.json["answers"] for one in found] == [single] * 12
        assert value(server, 'teco_batch_rows_count{model="digits"}') < 13


def test_a_sample_that_cannot_be_read_spoils_no_other() -> None:
    image = (DIGITS / "data/val/7/0081.png").read_bytes()
    with serving("digits", "--queue_delay", 100) as server:
        single = server.ask("/v2/models/digits/answer", image, content_type="image/png").json["answers"]
        bodies = [image, b"broken", image, image[:90], image]
        found = together(
            [
                lambda body=body: server.ask("/v2/models/digits/answer", body, content_type="image/png")
                for body in bodies
            ]
        )
        assert [found[place].json["answers"] for place in (0, 2, 4)] == [single] * 3
        for place in (1, 3):
            assert found[place].status == 400


def test_models_of_different_lengths() -> None:
    """Texts of other lengths have other shapes, and are batched with their like only."""
    texts = [f"this is text number {'one ' * (number % 7)}" for number in range(30)]
    with serving("language_id", "--queue_delay", 20) as server:

        def ask(text: str) -> Reply:
            return server.ask("/v2/models/language_id/answer", text, content_type="text/plain")

        alone = [ask(text).json["answers"][0]["answer"] for text in texts]
        found = together([lambda text=text: ask(text) for text in texts])
        assert [one.json["answers"][0]["answer"] for one in found] == alone


def test_several_models_at_once() -> None:
    image = np.random.default_rng(3).random((1, 3, 32, 32)).astype(np.float32)
    names = ("one", "two", "three")
    words = [f"{name}={ROOT / 'example/classification/digits/digits_dyn.onnx'}" for name in names]
    with serving(*words) as server:
        calls = [
            lambda name=name: server.ask(f"/v2/models/{name}/infer", {"inputs": [tensor("input", image)]})
            for name in names * 6
        ]
        found = together(calls)
        assert {one.status for one in found} == {200}
        assert len({str(one.json["outputs"]) for one in found}) == 1
