"""Run a third party's engine in a child process, so that its crash or hang becomes a line and an exit code.

The zoo's own engines run in the script's process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from engine import ConfigError, provider
from tecoinfer_modelzoo.text import printable, shortened

_LONGEST = 200
"""Largest length of the run's description in the line about its end."""


def supervise_foreign(target: str, models: Iterable[Path] = ()) -> None:
    """Continue in a child process if the target's engine is a third party's; call this before it is opened.

    ``models`` are for the line about the child's end. Raises ConfigError if a limit in the environment is invalid.
    """
    by = provider(target)
    if by == "built-in":
        return
    from tecoinfer_modelzoo.process.limits import limits_of
    from tecoinfer_modelzoo.process.supervise import SCRIPTS, supervised

    try:
        limits = limits_of()
    except ValueError as error:
        raise ConfigError(f"environment variable {error}") from error
    files = ", ".join(path.name for path in models)
    name = f"{os.path.basename(sys.argv[0])}: {files} on target {target} ({by})"
    supervised(shortened(name, _LONGEST), limits, partial(printable, keep=""), SCRIPTS)
