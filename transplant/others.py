"""Other files: shell scripts, configurations, package lists, and sources of CUDA kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

_KERNELS = frozenset({".cu", ".cuh"})
_NATIVE = frozenset({".c", ".cc", ".cpp", ".cxx", ".h", ".hpp"})
_SHELL = frozenset({".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".env"})
_SETTINGS = frozenset({".yaml", ".yml", ".toml", ".cfg", ".ini", ".json"})
_NAMED = re.compile(r"(?i)Dockerfile.*|Makefile|.*requirements.*\.txt|environment\.ya?ml|constraints.*\.txt")
_COMMENT = re.compile(r"^\s*#(?!SBATCH|PBS)")

_LINES = (
    (re.compile(r"CUDA_VISIBLE_DEVICES"), "the variable of CUDA's devices", "use SDAA_VISIBLE_DEVICES"),
    (re.compile(r"\bnvidia-smi\b"), "a tool for NVIDIA's cards", "use teco-smi"),
    (re.compile(r"\bnccl\b"), "the backend of CUDA", "use tccl"),
    (re.compile(r"\bNCCL_\w+"), "a variable of NCCL without effect on the card", "remove it"),
    (re.compile(r"\bcuda\b(:\d+)?(?![\w/-])"), "a device of CUDA", "use sdaa for the card"),
    (re.compile(r"\binductor\b"), "a compiler that generates no code for the card", "use sdaa"),
    (re.compile(r"\bnvcc\b|\bnsys\b|\bncu\b"), "a tool of CUDA", "remove it; the card does not run CUDA kernels"),
    (re.compile(r"--gpus?\b|--gres=gpu"), "it requests GPUs", "request cards instead"),
)
_PACKAGES = re.compile(
    r"(?i)^\s*(-\s*)?(cupy|pycuda|nvidia-|triton|flash[-_]attn|xformers|bitsandbytes|horovod|pynvml|tensorrt)\S*"
    r"|\+cu\d+|/whl/cu\d+|cudatoolkit|pytorch-cuda"
)
MOST = 1 << 20
"""Maximum characters of a file that are read."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line for manual work: number, text, reason and fix."""

    number: int
    what: str
    reason: str
    fix: str


def is_read(name: str) -> bool:
    """Return whether a file of this name is read."""
    path = PurePath(name)
    return path.suffix.lower() in _KERNELS | _NATIVE | _SHELL | _SETTINGS or bool(_NAMED.fullmatch(path.name))


def look(name: str, text: str) -> list[Line]:
    """Return the lines of a file that concern CUDA."""
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix in _KERNELS:
        return [Line(1, path.name, "CUDA kernels do not run on the card", "write the operator with torch.library")]
    lines = text[:MOST].splitlines()
    if suffix in _NATIVE:
        found = re.compile(r"cuda_runtime|ATen/cuda|c10/cuda|at::cuda|c10::cuda|<<<")
        first = next((number for number, line in enumerate(lines, 1) if found.search(line)), 0)
        why, fix = "it is written for CUDA", "use the card's dispatch key, PrivateUse1"
        return [Line(first, lines[first - 1].strip()[:80], why, fix)] if first else []
    listed = bool(re.search(r"(?i)requirements|constraints|environment", path.name))
    return [found for number, line in enumerate(lines, 1) for found in _of_line(number, line, listed)]


def _of_line(number: int, line: str, listed: bool) -> list[Line]:
    if _COMMENT.match(line):
        return []
    if listed:
        match = _PACKAGES.search(line)
        return [Line(number, match[0].strip(), "a package of CUDA", "remove it, or use its CPU build")] if match else []
    hits = [(match, why, fix) for pattern, why, fix in _LINES if (match := pattern.search(line))]
    return [Line(number, match[0], why, fix) for match, why, fix in hits]
