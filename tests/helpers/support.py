"""Shared names of tests; the fixtures are in conftest.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
TVM = ("tvm",) if find_spec("tvm") else ()
"""Target tvm for tests that are run on every target, if it is installed."""

DIGITS = ROOT / "example" / "classification" / "digits"

SaveOnnx = Callable[..., Path]


class RunPython(Protocol):
    def __call__(
        self, *args: object, cwd: Path = ..., path: Sequence[Path] = ..., limit: float = ..., **env: str
    ) -> subprocess.CompletedProcess[str]: ...


def made(task: Any, options: Any, model: Any = None) -> Any:
    """Return an object of a task, in either form, for a run with these options."""
    from utils.tasks.base import task_class

    found = task_class(task)(options)
    return found if model is None else found.bind(model)


@cache
def computes_bfloat16() -> bool:
    """Return whether OpenVINO supports bfloat16 on this processor (not with AVX2 only)."""
    from engine.backends import ov

    openvino, hint = ov._import(), "INFERENCE_PRECISION_HINT"
    x = openvino.opset13.parameter([1], openvino.Type.f32)
    model = openvino.Model([openvino.opset13.relu(x)], [x])
    return bool(ov._core(openvino).compile_model(model, "CPU", {hint: "bf16"}).get_property(hint) == openvino.Type.bf16)


def require_bfloat16() -> None:
    """Skip the test if OpenVINO does not support bfloat16 here."""
    if not computes_bfloat16():
        pytest.skip("OpenVINO does not compute in bfloat16 on this processor")
