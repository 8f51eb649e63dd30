"""A trial with NaN in outputs fails, even if the samples are wrong on the baseline too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from support import SaveOnnx

from engine import TensorSpec
from model_config.results import Verdict
from toolkit.fix.array_samples import load_samples
from toolkit.fix.records import RawMeasure
from toolkit.fix.trials import Trials


def test_nan_in_wrong_samples_fails(save_onnx: SaveOnnx, tmp_path: Path) -> None:
    rows = np.abs(np.random.default_rng(0).standard_normal((400, 4))).astype(np.float32)
    rows[7] = [-1, 5, 5, 5]
    labels = rows.argmax(axis=1)
    labels[7] = 0
    np.savez(tmp_path / "data.npz", x=rows, labels=labels)
    whole = save_onnx("g (float[N,4] x) => (float[N,4] y) { y = Identity(x) }")
    broken = save_onnx("g (float[N,4] x) => (float[N,4] y) { r = Sqrt(x) y = Mul(r, r) }", name="broken.onnx")
    spec = TensorSpec("x", np.dtype(np.float32), (None, 4), batch_axis=0)
    trials = Trials(load_samples(tmp_path / "data.npz", [spec], {}, 64), RawMeasure("top1"), 0.05, tmp_path)
    trials.take_baseline(whole)
    assert trials.host(whole, "the same").accuracy.verdict is Verdict.PASS
    found = trials.host(broken, "with NaN")
    assert (found.accuracy.verdict, found.accuracy.metric) == (Verdict.FAIL, trials.baseline)
    assert found.accuracy.reason.startswith("1 of 400 samples have NaN in the model's output (data.npz[7])")
    assert found.records is not None
