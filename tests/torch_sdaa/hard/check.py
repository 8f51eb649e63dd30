"""A hard check: a function that asserts a common use of a device and leaves the process unchanged."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import torch_sdaa  # noqa: F401 - makes the device
from torch_sdaa.loading.core import C

ROOT = Path(__file__).resolve().parents[3]
DEVICES = ("sdaa:0", "sdaa:1", "sdaa:2", "sdaa:3")


@dataclass(frozen=True)
class Check:
    """A function without arguments that raises if the device is wrong.

    Attributes:
        costly: whether it takes more than half a second: starts processes, or has PyTorch trace a program.
    """

    name: str
    function: Callable[[], object]
    costly: bool


CHECKS: dict[str, Check] = {}


def check(function: Callable[[], object]) -> Callable[[], object]:
    """Make a function a check."""
    _add(Check(function.__name__, function, costly=False))
    return function


def costly_check(function: Callable[[], object]) -> Callable[[], object]:
    """Make a function a check that takes more than half a second."""
    _add(Check(function.__name__, function, costly=True))
    return function


def _add(made: Check) -> None:
    assert made.name not in CHECKS, f"two checks are named {made.name}"
    CHECKS[made.name] = made


def state() -> dict[str, Any]:
    """Return the state that a check must not change. Memory is in bytes per device."""
    gc.collect()
    return {
        "memory": [torch.sdaa.memory_allocated(i) for i in range(torch.sdaa.device_count())],
        "device": torch.sdaa.current_device(),
        "streams": [torch.sdaa.current_stream(i).stream_id for i in range(torch.sdaa.device_count())],
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "autocast": torch.is_autocast_enabled("sdaa"),
        "flush": float(torch.tensor(1e-39) * 1) == 0.0,
    }


def leaves(value: object) -> list[Any]:
    """Return the tensors and numbers of nested lists, tuples and dicts, tensors on the CPU."""
    return [leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves(value)]


def same(got: object, wanted: object) -> None:
    """Assert that both hold the same tensors and numbers, bit for bit (NaN equals NaN)."""
    ours, theirs = leaves(got), leaves(wanted)
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, Tensor) and one.layout is torch.strided:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        elif isinstance(one, Tensor):
            same((one._indices(), one._values()), (other._indices(), other._values()))
        else:
            assert one == other or (one != one and other != other), (one, other)


def agree(work: Callable[[str], object], *devices: str) -> None:
    """Assert that ``work(device)`` gives the CPU's results on devices (the current one by default)."""
    torch.manual_seed(0)
    wanted = leaves(work("cpu"))
    for device in devices or ("sdaa",):
        torch.manual_seed(0)
        same(work(device), wanted)


def refused(work: Callable[[], object], *words: str, kind: type[BaseException] = RuntimeError) -> str:
    """Assert that ``work`` raises an error that has these words; return its text."""
    try:
        work()
    except kind as error:
        text = str(error)
        for word in words:
            assert word in text, f"{word!r} is not in: {text}"
        return text
    raise AssertionError("nothing was refused")


def environment() -> dict[str, str]:
    """Return the variables for a child process: it uses the extension of this one, and compiles none."""
    return {**os.environ, "TECO_CACHE_DIR": str(Path(C.__file__).parents[1])}


def alone(code: str, timeout: float = 120) -> str:
    """Run Python code in a new process with torch and the device; return its output.

    It must end with exit code 0 and say nothing of an abort.
    """
    head = "import torch, torch_sdaa\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", head + code],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-800:]}"
    assert "terminate called" not in done.stderr, done.stderr[-800:]
    return done.stdout.strip()


def network() -> nn.Sequential:
    """Return a small network for images of 3 x 8 x 8 and larger: 10 classes."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def images(batch: int = 2, size: int = 8) -> Tensor:
    """Return random images on the CPU: batch x 3 x size x size."""
    return torch.randn(batch, 3, size, size)
