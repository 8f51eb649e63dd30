"""Compile ``gate_cpp.cpp`` once into the cache folder, load it, and register shapes and backward of ``zoo_cpp::gate``.

Importing this module does so; the operator is then ``torch.ops.zoo_cpp.gate``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.cpp_extension import include_paths, library_paths

from engine import ConfigError
from tecoinfer_modelzoo.cache import cache_folder

SOURCE = Path(__file__).resolve().parent / "gate_cpp.cpp"
FLAGS = ("-O2", "-std=c++20", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")


def compiled() -> Path:
    """Return the compiled file for this source and this torch; it is compiled if missing.

    Raises:
        ConfigError: the compiler or the cache folder is missing, or the source does not compile.
    """
    folder = cache_folder("custom_op")
    if folder is None:
        raise ConfigError("a cache folder for the compiled operator is missing; set TECO_CACHE_DIR")
    key = repr((SOURCE.read_bytes(), torch.__version__, FLAGS)).encode()
    file = folder / f"gate_{hashlib.sha256(key).hexdigest()[:16]}.so"
    if file.is_file():
        return file
    partial = file.with_suffix(f".{os.getpid()}.so")
    command = [os.environ.get("CXX", "g++"), *FLAGS, str(SOURCE), "-o", str(partial)]
    command += [f"-I{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    try:
        done = subprocess.run([*command, "-lc10", "-ltorch_cpu"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ConfigError(f"compiler {command[0]} not found; install g++, or set CXX") from error
    if done.returncode != 0:
        wrong = next((line for line in done.stderr.splitlines() if "error" in line), f"exit code {done.returncode}")
        raise ConfigError(f"{SOURCE.name} does not compile: {wrong}")
    partial.replace(file)  # two processes may compile at once: the file is there whole, or not at all
    return file


torch.ops.load_library(str(compiled()))
gate = torch.ops.zoo_cpp.gate


@torch.library.register_fake("zoo_cpp::gate")
def _shapes(x: Tensor, g: Tensor) -> Tensor:
    """Return the output's shape and dtype without computing it."""
    torch._check(x.shape == g.shape, lambda: f"x and g must have one shape, not {tuple(x.shape)} and {tuple(g.shape)}")
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.register_fake("zoo_cpp::gate_backward")
def _backward_shapes(grad: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    like = torch.contiguous_format
    return torch.empty_like(x, memory_format=like), torch.empty_like(g, memory_format=like)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = torch.ops.zoo_cpp.gate_backward(grad, *ctx.saved_tensors)
    return found


torch.library.register_autograd("zoo_cpp::gate", _backward, setup_context=_keep)
