"""Tasks of ``contrib/utils``: their flags, asked of a limited process, and what is wrong with those that give none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine import DataError
from model_config.run.foreign import Foreign, contributed
from utils.tasks.base import SCRIPTS

_SECONDS = 120.0
"""In which a task must be imported: it only says what flags there are."""

_MOST = 1000
_FLAG = re.compile(r"--?[A-Za-z][\w-]{0,200}")

_Flags = Mapping[str, frozenset[str]]


@dataclass(slots=True)
class Tasks:
    """The tasks that the scripts of one folder run, each asked for once.

    Attributes:
        troubles: what is wrong, by the file of the module, relative to the repository.
    """

    foreign: Foreign
    troubles: dict[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, str], _Flags | None] = field(default_factory=dict)

    def flags(self, module: str, name: str, script: str) -> set[str] | None:
        """Return the flags of a script of a task; ``None`` where it has none or cannot be asked.

        Args:
            module, name: where the task is. script: one of ``utils.tasks.base.SCRIPTS``.
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
    """Return an answer that can be one.

    Raises:
        DataError: it cannot.
    """
    if flags is None:  # the name stands for no task: the step that runs it says so
        return None
    rows = [flags.get(script) for script in SCRIPTS] if isinstance(flags, Mapping) else [None]
    if not all(isinstance(row, list) and len(row) <= _MOST and all(map(_is_flag, row)) for row in rows):
        raise DataError("gave an answer that is none; do not write to the process's files")
    return {script: frozenset(flags[script]) for script in SCRIPTS}


def _is_flag(text: Any) -> bool:
    return isinstance(text, str) and _FLAG.fullmatch(text) is not None
