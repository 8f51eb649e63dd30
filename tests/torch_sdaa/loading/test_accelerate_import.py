"""Accelerate's settings of FSDP, whichever of accelerate and ``torch_sdaa`` is imported first."""

from __future__ import annotations

import pytest
from support import RunPython

pytest.importorskip("torch")
pytest.importorskip("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SCRIPT = """
import {first}
import {second}
import torch
from accelerate import FullyShardedDataParallelPlugin, PartialState

settings = FullyShardedDataParallelPlugin(sync_module_states=True, fsdp_version=1)
PartialState(cpu={cpu})
with torch.device("meta"):
    layer = torch.nn.Linear(3, 2)
print(settings.param_init_fn(layer).weight.device)
print(FullyShardedDataParallelPlugin(sync_module_states=False, cpu_ram_efficient_loading=False).param_init_fn)
"""


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("order", [("accelerate", "torch_sdaa"), ("torch_sdaa", "accelerate")])
def test_parameters_of_other_ranks_are_on_accelerates_device(
    run_python: RunPython, order: tuple[str, str], cpu: bool
) -> None:
    done = run_python("-c", SCRIPT.format(first=order[0], second=order[1], cpu=cpu), PYTHONWARNINGS="ignore")
    assert done.returncode == 0, done.stderr[-2000:]
    device, unset = done.stdout.splitlines()
    assert (device.startswith("sdaa"), device == "cpu", unset) == (not cpu, cpu, "None")
