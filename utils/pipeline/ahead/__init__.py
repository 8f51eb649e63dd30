"""Prepare batches ahead of the engine."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.pipeline.ahead.threads import WORKER_MODES, prepared

__all__ = ["WORKER_MODES", "prepared"]
