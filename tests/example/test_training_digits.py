"""example/training/digits: the same losses and weights on the CPU and on every device, there and back."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import DIGITS, ROOT, RunPython

from toolkit.commands import train_gate

torch: Any = pytest.importorskip("torch")
pytest.importorskip("sklearn")
import torch_sdaa  # noqa: E402, F401 -- here, before a test gets a cache folder of its own, where it would be compiled anew

pytestmark = pytest.mark.torch
FOLDER = ROOT / "example" / "training" / "digits"
COMMON = ("train", "model", "make_data")
"""Modules whose names the zoo's folder shares with others."""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with 192 images to train on and 60 held out: 3 steps an epoch."""
    path, before = list(sys.path), {name: sys.modules.pop(name, None) for name in COMMON}
    spec = importlib.util.spec_from_file_location("training_digits", FOLDER / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y, held_out, labels = module.load()
    module.load = lambda: (x[:192], y[:192], held_out[:60], labels[:60])  # type: ignore[attr-defined]
    yield module
    sys.path[:] = path
    for name, old in before.items():
        sys.modules.pop(name, None)
        if old is not None:
            sys.modules[name] = old


@pytest.fixture(autouse=True)
def _same_random_numbers_afterwards() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def begun(script: ModuleType, device: str, epochs: int = 2, seed: int = 0) -> Any:
    return script.Training(argparse.Namespace(epochs=epochs, batch_size=64, seed=seed), script.device_of(device))


def losses_of(training: Any, epochs: int) -> list[float]:
    return [loss.item() for _ in range(epochs) for loss in training.run_epoch()]


def weights_of(training: Any) -> dict[str, Any]:
    return {name: tensor.cpu() for name, tensor in training.model.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def on_cpu(script: ModuleType) -> tuple[list[float], dict[str, Any], float]:
    with torch.random.fork_rng(devices=[]):
        training = begun(script, "cpu")
        return losses_of(training, 2), weights_of(training), training.accuracy()


@pytest.mark.slow
@pytest.mark.parametrize("device", ["sdaa", "sdaa:1"])
def test_losses_weights_and_metric_are_the_cpus_bit_for_bit(
    device: str, script: ModuleType, on_cpu: tuple[list[float], dict[str, Any], float]
) -> None:
    losses, weights, accuracy = on_cpu
    training = begun(script, device)
    assert {one.device for one in training.model.parameters()} == {torch.device("sdaa", int(device == "sdaa:1"))}
    assert losses_of(training, 2) == losses
    assert same(weights_of(training), weights)
    assert training.accuracy() == accuracy
    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_another_seed_is_another_training(
    script: ModuleType, on_cpu: tuple[list[float], dict[str, Any], float]
) -> None:
    assert losses_of(begun(script, "sdaa", seed=1), 1) != on_cpu[0][:3]


@pytest.mark.parametrize(("first", "second"), [("sdaa", "cpu"), ("cpu", "sdaa:1")])
def test_resumed_training_is_identical_on_any_device(
    first: str, second: str, script: ModuleType, on_cpu: tuple[list[float], dict[str, Any], float], tmp_path: Path
) -> None:
    losses, weights, _ = on_cpu
    begins = begun(script, first)
    assert losses_of(begins, 1) == losses[:3]
    begins.save(tmp_path / "checkpoint.pth")
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pth"]
    goes_on = begun(script, second, seed=7)
    goes_on.resume(tmp_path / "checkpoint.pth")
    assert goes_on.epoch == 1
    assert losses_of(goes_on, 1) == losses[3:]
    assert same(weights_of(goes_on), weights)


def test_foreign_checkpoints_are_rejected_in_one_line(script: ModuleType, tmp_path: Path) -> None:
    begun(script, "cpu").save(tmp_path / "other.pth")
    (tmp_path / "text.pth").write_text("hello", encoding="utf-8")
    (tmp_path / "lines.pth").write_text("root:x:0:0:root:/root:/bin/bash\n", encoding="utf-8")
    torch.save({"weight": torch.ones(1)}, tmp_path / "weights.pth")
    half = torch.load(tmp_path / "other.pth", weights_only=True)
    torch.save({name: half[name] for name in half if name not in ("order", "epoch")}, tmp_path / "half.pth")
    for name, epochs, said in [
        ("none.pth", 2, "No such file or directory"),
        ("text.pth", 2, "is not a checkpoint"),
        ("lines.pth", 2, "is not a checkpoint"),
        ("half.pth", 2, "has no epoch, order"),
        ("weights.pth", 2, "is not a checkpoint"),
        ("other.pth", 3, "this training has 9 steps, the checkpoint's 6"),
    ]:
        with pytest.raises(script.ConfigError) as caught:
            begun(script, "cpu", epochs).resume(tmp_path / name)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["sdaa:9", "cuda", "sdda"])
def test_missing_device_is_one_line(device: str, script: ModuleType) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(script.ConfigError, match=rf"^--device {device}: .*cpu, .*sdaa:1$"):
        script.device_of(device)


def test_printed_and_written_results(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = tmp_path / "losses.jsonl"
    words = ["--device", "sdaa", "--epochs", "1", "--seed", "3", "--out", str(tmp_path), "--losses", str(losses)]
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    assert script.main() == 0
    epoch, simulated, wrote, metric = capsys.readouterr().out.splitlines()
    assert epoch.startswith("epoch 1: loss ")
    assert epoch.endswith(" s on this machine")
    assert simulated.startswith("  simulated: ")
    assert "ms" in simulated
    assert wrote == f"{tmp_path / 'digits.pth'}: trained on sdaa:0"
    assert 0 <= float(metric.removeprefix("eval_metric ")) <= 1
    head, *steps = (json.loads(line) for line in losses.read_text(encoding="utf-8").splitlines())
    assert head == {"device": "sdaa:0", "seed": 3}
    assert [step["step"] for step in steps] == list(range(3))
    assert all(math.isfinite(step["loss"]) for step in steps)
    kept = torch.load(tmp_path / "digits.pth", weights_only=True)
    assert {tensor.device.type for tensor in kept.values()} == {"cpu"}


ROUNDED = """
import runpy, sys
import torch

step = torch.optim.AdamW.step

def rounded(self, *args, **how):
    found = step(self, *args, **how)
    with torch.no_grad():
        for group in self.param_groups:
            for weight in group["params"]:
                weight.copy_(weight.{to}.float())
    return found

if sys.argv[sys.argv.index("--device") + 1] != "cpu":
    torch.optim.AdamW.step = rounded
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("to", ["half()", "to(torch.float8_e4m3fn)"])
def test_gate_detects_rounded_weights(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TECO_CACHE_DIR")
    wrapped = tmp_path / "rounded.py"
    wrapped.write_text(ROUNDED.format(to=to, script=str(FOLDER / "train.py")), encoding="utf-8")
    json_file = tmp_path / "found.json"
    words = [str(wrapped), "--seeds", "2", "--json", str(json_file), "--", "--epochs", "1", "--out", str(tmp_path)]
    code = train_gate.main(words)
    found = json.loads(json_file.read_text(encoding="utf-8"))
    assert (code, found["verdict"]) in {(1, "FAIL"), (4, "INCONCLUSIVE")}
    assert all(row["parted"] == 1 for row in found["rows"])
    assert "the curves of 2 of 2 seeds diverge, the first at step 1" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.long
def test_train_export_and_evaluate(tmp_path: Path, run_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained on the card as a user does it, exported by the zoo's script, and the same answers from the ONNX file."""
    monkeypatch.delenv("TECO_CACHE_DIR")  # the extension lies in the usual folder
    done = run_python(FOLDER / "train.py", "--device", "sdaa", "--epochs", 4, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    metric = float(done.stdout.splitlines()[-1].removeprefix("eval_metric "))
    assert metric > 0.95
    done = run_python(DIGITS / "export_onnx.py", "--weights", tmp_path / "digits.pth", "--out", tmp_path)
    assert (done.returncode, done.stdout.count("largest relative error")) == (0, 3)
    done = run_python(DIGITS / "example_valid.py", "--ckpt", tmp_path / "digits_dyn.onnx", "--target", "onnx")
    found = next(line for line in done.stdout.splitlines() if line.startswith("eval_metric "))
    assert float(found.removeprefix("eval_metric ")) == pytest.approx(metric, abs=1e-6)
    assert os.path.getsize(tmp_path / "digits.pth") < 200_000
    assert np.isfinite(metric)
