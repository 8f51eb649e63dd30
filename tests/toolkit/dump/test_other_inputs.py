"""Inputs that differ from a dump's are reported before any node, with the likely mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import SaveOnnx

from engine import Array
from toolkit.cli import execute
from toolkit.dump.other_inputs import REVERSED, SCALED, mistake

RNG = np.random.default_rng(0)
OWN: Array = RNG.normal(size=(2, 3, 5, 5)).astype(np.float32)
MEAN, STD = np.float32([1, 2, 3]).reshape(3, 1, 1), np.float32([0.2, 0.3, 0.4]).reshape(3, 1, 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (OWN[:, ::-1], REVERSED),
        ((OWN - MEAN) / STD, SCALED),
        (OWN * 255, SCALED),
        ((OWN[:, ::-1] - MEAN) / STD, f"{REVERSED}, and {SCALED}"),
        (OWN.swapaxes(2, 3), ""),
        (OWN[:1], ""),
        (RNG.normal(size=OWN.shape), ""),
        (np.full_like(OWN, np.nan), ""),
        (np.zeros_like(OWN), ""),
    ],
)
def test_image_preprocessing_mistakes(given: Array, why: str) -> None:
    assert mistake(OWN, given) == why


def test_no_explanation_for_other_arrays() -> None:
    assert mistake(OWN[0], OWN[0] * 2) == ""
    assert mistake(np.ones((1, 3, 2, 2), np.int64), np.zeros((1, 3, 2, 2), np.int64)) == ""
    assert mistake(OWN[:, :1], OWN[:, :1] * 2) == SCALED


def test_input_is_first_bad_node(save_onnx: SaveOnnx, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(save_onnx("g (float[2, 3, 5, 5] x) => (float[2, 3, 5, 5] y) { y = Relu(x) }"))
    np.savez(tmp_path / "right.npz", x=OWN)
    np.savez(tmp_path / "wrong.npz", x=OWN[:, ::-1])
    dump = str(tmp_path / "dump")
    assert execute(["dump", "full", model, "--data", str(tmp_path / "right.npz"), "--out", dump]) == 0
    for name, code in (("right", 0), ("wrong", 1)):
        for side in ("--a", "--b"):
            capsys.readouterr()
            words = ["compare", model, side, dump, "--data", str(tmp_path / f"{name}.npz")]
            assert execute([*words, *(["--b", "onnx"] if side == "--a" else [])]) == code
            printed = capsys.readouterr().out
            assert ("first bad node: x (graph_input)" in printed) == bool(code)
            assert (f"input 'x' differs from that of dump dump: {REVERSED}" in printed) == bool(code)
