"""Tasks: what a domain is. One file each: here, in ``contrib/utils/tasks``, or by an entry point."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.tasks.base import (
    SCRIPTS,
    Artifact,
    Compare,
    Diagnostics,
    ExportSetting,
    Flag,
    Notes,
    OpenSizes,
    Options,
    PredictionWriter,
    Rendering,
    Sizes,
    Task,
    Template,
    str2bool,
)
from utils.tasks.model import Model
from utils.tasks.options import at_least
from utils.tasks.prepared import NoAnswer, Prepared, Shards

__all__ = [
    "SCRIPTS", "Artifact", "Compare", "Diagnostics", "ExportSetting", "Flag", "Model", "NoAnswer", "Notes", "OpenSizes",
    "Options", "PredictionWriter", "Prepared", "Rendering", "Shards", "Sizes", "Task", "Template", "at_least",
    "str2bool",
]  # fmt: skip
