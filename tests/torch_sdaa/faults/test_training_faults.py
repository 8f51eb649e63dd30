"""Faults while training, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_sdaa  # noqa: F401 -- compiles the extension where the cache has none

TRAIN = """
import torch, torch_sdaa
from torch_sdaa.loading.core import C
model = torch.nn.Linear(4, 4).to("sdaa")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ends = [0.0]
try:
    for step in range(4):
        loss = model(torch.ones(2, 4, device="sdaa")).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, "nan" if loss.isnan() else "fine")
        ends.append(C.times(0)["now"])
except RuntimeError as error:
    print(type(error).__name__, error)
    try:
        torch.sdaa.synchronize()
    except RuntimeError as again:
        print("again", str(again) == str(error))
    print("other", torch.ones(2, device="sdaa:1").sum().item())
torch.sdaa.synchronize(1)
print("waited", C.times(0)["host"] >= 1.0)
"""


def _train(faults: str, code: str = TRAIN) -> tuple[list[str], str]:
    # The extension as this process found it: a test's own cache folder is empty.
    cache = str(Path(str(sys.modules["_sdaa"].__file__)).parents[1])
    environment = {**os.environ, "TECO_SIM_FAULTS": faults, "TECO_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_a_lost_device_raises_one_clear_error_and_the_others_go_on() -> None:
    lines, errors = _train("lose:spa=0,step=2")
    assert lines[:1] == ["step 0 fine"]
    assert lines[1].startswith("RuntimeError sdaa:0 of TECO_AICARD_01: DEVICE_LOST in step 2 (simulated)")
    assert lines[1].endswith("or remove the fault from TECO_SIM_FAULTS")
    assert lines[2:] == ["again True", "other 2.0", "waited False"]
    assert errors == ""


@pytest.mark.long
@pytest.mark.slow
def test_a_hanging_device_is_lost_after_the_heartbeat() -> None:
    lines, errors = _train("hang:spa=0,step=1")
    assert lines[0].startswith(
        "RuntimeError sdaa:0 of TECO_AICARD_01: HEARTBEAT_ERROR in step 1 (simulated, given up after"
    )
    assert lines[1:] == ["again True", "other 2.0", "waited True"]
    assert errors == ""


@pytest.mark.long
@pytest.mark.slow
def test_nan_and_out_of_memory_last_one_step() -> None:
    lines, _ = _train("nan:spa=0,step=1")
    assert lines[:2] == ["step 0 fine", "step 1 nan"]
    lines, _ = _train("oom:spa=0,step=1")
    assert lines[0].startswith("OutOfMemoryError SDAA out of memory")
    assert "injected fault (TECO_SIM_FAULTS)" in lines[0]


@pytest.mark.long
@pytest.mark.slow
def test_a_slow_device_takes_longer() -> None:
    code = (
        "import torch, torch_sdaa\n"
        "from torch_sdaa.loading.core import C\n"
        "x = torch.ones(64, 64, device='sdaa'); C.trace(True); x @ x\n"
        "o = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1); o.step()\n"
        "x @ x\n"
        "spans, _ = C.trace(False)\n"
        "(a, b) = [s[6] - s[5] for s in spans if s[0] == 'aten::mm']\n"
        "print(round(b / a, 6))\n"
    )
    assert _train("slow:spa=0,step=1,factor=4", code) == (["4.0"], "")


@pytest.mark.slow
def test_a_fault_of_a_missing_device_is_an_error() -> None:
    lines, errors = _train("lose:spa=4,step=0", "import torch_sdaa")
    assert lines == []
    assert errors.rstrip().endswith("TECO_SIM_FAULTS: SPA 4 does not exist; this card has 4 (0 to 3)")
