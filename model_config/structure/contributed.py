"""Flags of tasks in ``contrib/utils``, queried in a limited process, and errors of tasks that cannot be imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine import DataError
from model_config.run.foreign import Foreign, contributed
from utils.tasks.base import SCRIPTS

_SECONDS = 120.0
"""Timeout in seconds for the import of a task."""

_MOST = 1000
_FLAG = re.compile(r"--?[A-Za-z][\w-]{0,200}")

_Flags = Mapping[str, frozenset[str]]


@dataclass(slots=True)
class Tasks:
    """Cache of the tasks that the scripts of one folder run.

    Attributes:
        troubles: error messages by module file, relative to the repository.
    """

    foreign: Foreign
    troubles: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, str], _Flags | None] = field(default_factory=dict)

    def flags(self, module: str, name: str, script: str) -> set[str] | None:
        """Return the flags of a script of a task; ``None`` if the task is missing or cannot be imported.

        Args:
            module, name: location of the task. script: one of ``utils.tasks.base.SCRIPTS``.
        """
        if (module, name) not in self._known:
            self._known[module, name] = self._asked(module, name)
        found = self._known[module, name]
        return None if found is None else set(found[script])

    def _asked(self, module: str, name: str) -> _Flags | None:
        file = contributed(module, self.foreign.root)
        if file is None or file in self.troubles:
            return None
        limits = replace(self.foreign.limits, timeout=min(self.foreign.limits.timeout, _SECONDS))
        try:
            said = replace(self.foreign, limits=limits).ask("flags", module=module, name=name)
            return _checked(said.get("flags"))
        except DataError as error:
            self.troubles[file] = str(error)
            return None


def _checked(flags: Any) -> _Flags | None:
    """Validate and convert the answer of the process.

    Raises:
        DataError: the answer has the wrong form.
    """
    if flags is None:  # the name is not a task: the step that runs it reports the error
        return None
    rows = [flags.get(script) for script in SCRIPTS] if isinstance(flags, Mapping) else [None]
    if not all(isinstance(row, list) and len(row) <= _MOST and all(map(_is_flag, row)) for row in rows):
        raise DataError("gave an invalid answer; do not write to the process's files")
    return {script: frozenset(flags[script]) for script in SCRIPTS}


def _is_flag(text: Any) -> bool:
    return isinstance(text, str) and _FLAG.fullmatch(text) is not None
