"""Models share the memory of the card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from served import serving, tensor
from support import DIGITS, ROOT, RunPython

pytestmark = pytest.mark.slow
for _package in ("fastapi", "uvicorn", "grpc", "prometheus_client"):
    pytest.importorskip(_package)

MODEL = DIGITS / "digits_dyn.onnx"


@pytest.fixture
def small_card(tmp_path: Path) -> str:
    """A card whose SPA hold two copies of the model, and not three."""

    from engine import EngineSpec, open_engine

    with open_engine("sdaa", EngineSpec(ckpt=MODEL, batch_size=8, dtype="float32")) as engine:
        size = engine.device_report()["memory_per_spa"]
    card = yaml.safe_load((ROOT / "engine/sdaa/t1.yaml").read_text(encoding="utf-8"))
    card["memory_mb"]["value"] = 2.5 * size / 2**20
    file = tmp_path / "card.yaml"
    file.write_text(yaml.safe_dump(card), encoding="utf-8")
    return str(file)


def test_models_that_fit(small_card: str) -> None:
    words = [f"a={MODEL}", f"b={MODEL}", "--target", "sdaa", "--dtype", "float32", "--max_batch", "8"]
    with serving(*words, TECO_SIM_CARD=small_card) as server:
        body = {"inputs": [tensor("input", np.zeros((1, 3, 32, 32), np.float32))]}
        assert server.ask("/v2/models/b/infer", body).status == 200
        refused = server.ask("/v2/repository/models/a/load", b"")  # the old one stays while the new one is opened
        assert (refused.status, "SPA" in refused.json["error"]) == (507, True)
        assert server.ask("/v2/models/a/infer", body).status == 200
        assert server.ask("/v2/repository/models/a/unload", b"").status == 200
        assert server.ask("/v2/repository/models/a/load", b"").status == 200


def test_models_that_do_not_fit(small_card: str, run_python: RunPython) -> None:
    words = [
        f"a={MODEL}",
        f"b={MODEL}",
        f"c={MODEL}",
        "--target",
        "sdaa",
        "--dtype",
        "float32",
        "--max_batch",
        "8",
        "--http_port",
        "0",
    ]
    done = run_python("-m", "toolkit.cli", "serve", *words, TECO_SIM_CARD=small_card)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "SPA" in done.stderr
