"""Tasks: what a domain is. One file each: here, in ``contrib/utils/tasks``, or by an entry point."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.tasks.base import Artifact, Flag, Options, Rendering, Task, Template
from utils.tasks.model import Model
from utils.tasks.prepared import NoAnswer, Prepared, Shards

__all__ = ["Artifact", "Flag", "Model", "NoAnswer", "Options", "Prepared", "Rendering", "Shards", "Task", "Template"]
