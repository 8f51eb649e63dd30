"""example/training/custom_op: its README's commands print what it shows; the operators are right on the device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, RunPython
from walkthrough import actions, shown

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo.cache import cache_folder

pytest.importorskip("torch")
pytest.importorskip("onnxsim")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long]

FOLDER = ROOT / "example" / "training" / "custom_op"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
CACHE = cache_folder("torch_sdaa")
"""Asked before a test's own cache folder is set: what is compiled stays for all runs."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of the files, and what the commands of the README print."""
    out, printed = tmp_path_factory.mktemp("custom_op"), ""
    cache = {"TECO_CACHE_DIR": str(CACHE.parent)} if CACHE else {}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **cache}
    for action in actions(README):
        command = [sys.executable, *action.text.split()[1:], "--out", str(out)]
        done = subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        printed += done.stdout
    return out, printed


def test_readme_output_equals_the_commands(ran: tuple[Path, str]) -> None:
    out, printed = ran
    lines = [_rough(line) for line in printed.replace(f"{out}{os.sep}", "").splitlines()]
    expected = [_rough(line) for line in shown(README)]
    assert len(expected) == 5
    assert lines[:5] == expected
    assert lines[5:] == [line.replace("zoo::", "zoo_cpp::").replace("gate_python", "gate_cpp") for line in expected]


def _rough(line: str) -> str:
    """Return a line without the last digits of float32, which another processor may change."""
    return re.sub(r"error \d\.\de-0[78]", "error", re.sub(r"(\d\.\d\d)\d\d", r"\1", line))


@pytest.mark.parametrize("name", ["gate_python", "gate_cpp"])
def test_exported_model_agrees_on_both_targets(name: str, ran: tuple[Path, str]) -> None:
    points = np.array([[0.5, 0.5], [-0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]], np.float32)
    found = {}
    for target in ("onnx", "sdaa"):
        spec = EngineSpec(ckpt=ran[0] / f"{name}_dyn.onnx", input_size=((1, 2),), dtype="float32")
        with open_engine(target, spec) as engine:
            found[target] = np.asarray(engine(points))
    np.testing.assert_array_equal(found["onnx"], found["sdaa"])
    assert found["onnx"].argmax(1).tolist() == [3, 1, 2, 0]  # it has learnt the quarters


DEVICE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, torch_sdaa, gate_python, gate_cpp
from torch_sdaa.loading.core import C

made = torch.Generator().manual_seed(0)
for gate in (torch.ops.zoo.gate, torch.ops.zoo_cpp.gate):
    found = []
    for device in ("cpu", "sdaa:0", "sdaa:1"):
        x, g = (torch.randn(7, 9, generator=made.manual_seed(k)).to(device).requires_grad_() for k in (1, 2))
        y = gate(x.t(), g.t())  # not contiguous
        (y * y).sum().backward()
        assert y.device == x.grad.device == torch.device(device)
        found.append([t.detach().cpu() for t in (y, x.grad, g.grad)])
    x, g = (t.detach().cpu().double() for t in (x, g))
    assert torch.allclose(found[0][0].double(), (x * torch.nn.functional.silu(g)).t(), atol=1e-6)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other))
try:
    gate(torch.zeros(2, device="sdaa"), torch.zeros(3, device="sdaa"))
except RuntimeError as error:
    print(str(error).splitlines()[0])
ones = torch.ones(256, device="sdaa")
before, launches = torch.sdaa.memory_allocated(), C.launches()
made = torch.ops.zoo_cpp.gate(ones, ones)
print(torch.sdaa.memory_allocated() - before, C.launches() - launches)
torch.ops.zoo.gate(ones, ones)
print(C.launches() - launches)
"""


def test_values_and_gradients_are_those_of_the_cpu_on_every_device(
    ran: tuple[Path, str], run_python: RunPython
) -> None:
    cache = {"TECO_CACHE_DIR": str(CACHE.parent)} if CACHE else {}
    done = run_python("-c", DEVICE, FOLDER, **cache)
    assert (done.returncode, done.stderr) == (0, "")
    wrong, held, launches = done.stdout.splitlines()
    assert "one shape" in wrong
    assert held == "1024 0"  # the result's bytes are on the device's books; the clock does not see the C++ kernel
    assert launches == "3"  # of the Python kernel, one a line


def test_missing_compiler_is_one_line(tmp_path: Path, run_python: RunPython) -> None:
    code = "from utils.pipeline import cli; cli.run(lambda: __import__('gate_cpp'))"
    done = run_python("-c", code, path=(ROOT, FOLDER), TECO_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    said = "error: compiler no-such-compiler not found; install g++, or set CXX\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "sdaa:7"], "--device sdaa:7: Invalid SDAA device index 7: this process sees 4 devices"),
        (["--device", "nowhere"], "--device nowhere: Expected one of cpu, cuda"),
        (["--out", "/dev/null/files"], "--out /dev/null/files"),
    ],
)
def test_bad_flags_are_one_line(words: list[str], said: str, run_python: RunPython) -> None:
    cache = {"TECO_CACHE_DIR": str(CACHE.parent)} if CACHE else {}
    done = run_python(str(FOLDER / "train.py"), *words, **cache)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1


def test_compile_failure_is_one_line(tmp_path: Path, run_python: RunPython) -> None:
    done = run_python(str(FOLDER / "train.py"), TECO_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    said = "error: CXX='no-such-compiler' is not a program; set it to a C++ compiler, or unset it\n"
    assert (done.returncode, done.stderr) == (2, said)
