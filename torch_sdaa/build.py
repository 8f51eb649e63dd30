"""Compiles the extension at the first import, into the cache folder, keyed by what it depends on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import torch

SOURCES = Path(__file__).resolve().parent / "csrc"
NAME = "_sdaa"


def key() -> str:
    """Return what the compiled file depends on: sources, torch, its ABI, Python, the compiler's flags."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(repr((torch.__version__, sysconfig.get_config_var("EXT_SUFFIX"), flags())).encode())
    return digest.hexdigest()[:20]


def flags() -> list[str]:
    """Return the compiler's flags, but for paths."""
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    return ["-O2", "-std=c++20", "-fPIC", "-shared", "-w", abi, f"-DTORCH_EXTENSION_NAME={NAME}"]


def folder() -> Path:
    """Return where compiled files are kept."""
    root = os.environ.get("TECO_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tecoinfer"
    )
    return Path(root, "torch_sdaa", key())


def command(output: Path) -> list[str]:
    """Return the compiler's command line."""
    root = Path(torch.__file__).parent
    includes = [
        root / "include",
        root / "include/torch/csrc/api/include",
        root / "include/kineto",
        sysconfig.get_paths()["include"],
    ]
    return [
        os.environ.get("CXX", "g++"),
        *flags(),
        *(f"-I{path}" for path in includes),
        str(SOURCES / "sdaa.cpp"),
        "-o",
        str(output),
        f"-L{root / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
        f"-Wl,-rpath,{root / 'lib'}",
    ]


def load() -> ModuleType:
    """Return the extension, compiled now where that was not done before."""
    path = folder() / f"{NAME}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.so")
        subprocess.run(command(partial), check=True)
        partial.replace(path)
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no extension module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
