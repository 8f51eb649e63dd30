"""What ``teco new`` makes a model of: ``*.tmpl`` files per task, and the sample data drawn for it."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

import importlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from utils.tasks.base import Template


def template_of(task: str, module: str) -> Template:
    """Return the template in a task's folder; its ``fill`` is that of a module here, imported on first use."""
    return Template(Path(__file__).with_name(task), partial(_fill, module))


def _fill(module: str, folder: Path) -> Mapping[str, str]:
    filled: Mapping[str, str] = importlib.import_module(f"{__name__}.{module}").fill(folder)
    return filled
