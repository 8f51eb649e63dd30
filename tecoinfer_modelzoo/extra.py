"""Import guards for optional packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tecoinfer_modelzoo import clone, install_command
from tecoinfer_modelzoo.distribution import original
from tecoinfer_modelzoo.errors import ConfigError

_CORE = ("PIL", "onnx", "onnx_ir", "onnxconverter_common", "onnxruntime", "onnxscript", "tqdm", "yaml")
"""Import names of the packages that an installation without extras provides."""

_OWN = ("engine", "model_config", "serve", "tecoexec", "tecoinfer_modelzoo", "toolkit", "transplant", "utils")


@contextmanager
def extra(use: str, name: str = "check") -> Iterator[None]:
    """Raise ConfigError with the command that installs extra ``name`` if an import in the block, for ``use``, fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        fix = f"run: {install_command(name)}"
        raise ConfigError(f"{use} needs the package {package}, which is not installed; {fix}") from error


@contextmanager
def needed(script: str) -> Iterator[None]:
    """Print the installation command and exit with 2 if an import at the top of ``script`` fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        here, package = Path(os.path.abspath(script)), (error.name or "").partition(".")[0]
        if not package or package in _OWN or (here.parent / f"{package}.py").exists():
            raise  # a module of the zoo or of the script's folder: installing a package does not help
        command = install_command() if package in _CORE else _install_requirements(here.parent / "requirements.txt")
        problem = ConfigError(f"{here.name} needs the package {package}, which is not installed; run: {command}")
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(2)


def _install_requirements(file: Path) -> str:
    root, constraints = clone(), ""
    if root is not None and (root / "constraints.txt").is_file():
        constraints = f'-c "{_from_here(original(root) / "constraints.txt")}" '
    return f'pip install {constraints}-r "{_from_here(original(file))}"'


def _from_here(file: Path) -> Path:
    """Return a path relative to the current folder if it is below it, else unchanged."""
    here = Path(os.path.abspath(os.curdir))
    return file.relative_to(here) if file.is_relative_to(here) else file
