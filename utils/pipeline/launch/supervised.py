"""Runs on a third party's engine: in a child process, so that a crash or a hang of it is a line and an exit code.

The zoo's own engines are not run this way, and pay nothing for it.
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
"""Characters of the run in a line about its end."""


def supervise_foreign(target: str, models: Iterable[Path] = ()) -> None:
    """Go on in a child process where a third party serves the target; to be called before it is opened.

    Args:
        target: its name.
        models: the files, which a line about the child's end names.

    Raises:
        ConfigError: a limit in the environment cannot be used.
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
