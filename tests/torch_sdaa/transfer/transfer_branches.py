"""Checks of ``transfer_checks.py``: a script that tests the device type takes CUDA's branch, for every way to test."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import torch


def texts_of_devices_compare_as_cuda() -> bool:
    device = torch.zeros(1, device="cuda:1").device
    text = str(device)
    as_cuda = (
        text == "cuda:1" == f"{device}"
        and "cuda" in text
        and text.startswith("cuda")
        and text.split(":")[0] == text.partition(":")[0] == text[:4] == "cuda"
        and text.find("cuda") == text.index("cuda") == 0
        and text.replace("cuda:", "") == text.removeprefix("cuda:") == "1"
        and {"cuda:1": 7}[text] == 7
        and text in ("cpu", "cuda:1")
    )
    file = io.BytesIO()
    torch.save({"device": text}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)["device"]
    shown = f"{device!s}" == text == "sdaa:1" and json.dumps(text) == '"sdaa:1"' and f"on {device}" == "on sdaa:1"
    return as_cuda and shown and type(saved) is str and saved == "cuda:1" and "cpu" not in text and text != "cuda:0"


def _branches(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    if x.is_cuda:
        x = x + 1
    if x.device.type == "cuda" and x.device.type in ("cuda", "mps"):
        x = x + 2
    if x.device == torch.device("cuda", 0):
        x = x + 4
    if "cuda" in str(x.device):
        x = x + 8
    if f"{x.device}" == "cuda:0":
        x = x + 16
    if x.type() == "torch.cuda.FloatTensor":
        x = x + 32
    if device.type == "cuda":
        x = x + 64
    if torch.cuda.is_available():
        x = x + 128
    return x


def compiled_code_takes_the_branches_of_cuda() -> bool:
    compiled = torch.compile(_branches, backend="eager")
    wanted = [255.0, 128.0 + 64.0]
    device = torch.device("cuda")
    found = [work(torch.zeros(1).to(place), device).item() for work in (_branches, compiled) for place in (0, "cpu")]
    return found == [*wanted, *wanted]


def _helper(x: torch.Tensor) -> torch.Tensor:
    if x.is_cuda:
        return x * 2
    return x


class _Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            x = x + 1
        if x.device.type == "cuda":
            x = x + 2
        if x.device.type in ["cuda", "mps"]:
            x = x + 4
        if "cuda" in str(x.device):
            x = x + 8
        for _ in range(1):
            x = x.to("cuda:0").cuda() + torch.ones([1], device="cuda") * 16
        return _helper(x)


class _Methods(torch.jit.ScriptModule):
    @torch.jit.script_method  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> bool:
        return x.is_cuda


def scripted_code_takes_the_branches_of_cuda() -> bool:
    x = torch.zeros(1, device="cuda")
    scripted = torch.jit.script(torch.nn.Sequential(_Scripted()))
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    text = "def kind_of(x: Tensor):\n  return x.is_cuda, x.device.type == 'cuda'\n"
    return (
        scripted(x).item() == torch.jit.load(file, map_location="cuda")(x).item() == 62.0
        and torch.jit.script(_helper)(torch.ones(1)).item() == 1.0
        and _Methods()(x)
        and torch.jit.CompilationUnit(text).kind_of(x) == (True, True)
        and not _Methods()(torch.ones(1))
    )


def torch_tells_that_cuda_is_built() -> bool:
    return torch.backends.cuda.is_built()


BRANCHES: list[Callable[[], Any]] = [
    texts_of_devices_compare_as_cuda,
    compiled_code_takes_the_branches_of_cuda,
    scripted_code_takes_the_branches_of_cuda,
    torch_tells_that_cuda_is_built,
]
