"""Queries about contributed code, answered by a limited process; the check itself imports no contributed code.

A module of a pull request may exit, block or modify the process that imports it. So it is imported by
:mod:`.foreign_answers` under a supervisor with limits on time, memory, processes and output; the answer is JSON that
the caller validates.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine import DataError
from model_config.run.closing import last_line
from model_config.run.environment import handed_on
from model_config.run.limits import Limits
from model_config.run.preloaded import Process
from model_config.run.supervised import broken, ending, settings_of, start_alone, supervised
from model_config.written import read_json
from tecoinfer_modelzoo.distribution import HOME
from tecoinfer_modelzoo.text import one_line, shortened
from utils.pipeline.launch.exit_status import crashed

_ANSWERS = "model_config.run.foreign_answers"

_MOST = 4 << 20
"""Maximum bytes of an answer, and of the output printed meanwhile."""

_SHOWN = 300
"""Maximum characters of a reason."""


class ForeignError(DataError):
    """Contributed code gave no usable answer; the message states how the process ended."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Client for queries about contributed code.

    Attributes:
        root: the repository, or a copy of it, whose ``contrib/`` is queried.
        limits: limits of the process that imports it.
        stop: set to stop the check.
        handed: additional environment variables for the process (:mod:`.environment`).
        cores: cores of the process; empty for all.
    """

    root: Path
    limits: Limits = field(default_factory=Limits)
    stop: threading.Event = field(default_factory=threading.Event)
    handed: Sequence[str] = ()
    cores: tuple[int, ...] = ()

    def ask(self, kind: str, **question: Any) -> dict[str, Any]:
        """Return the answer to a question of :data:`.foreign_answers.KINDS`; its values are not validated.

        Raises:
            ForeignError: the answer is missing or is not a JSON object.
            DataError: the answer reports an error.
            KeyboardInterrupt: ``stop`` was set.
        """
        with tempfile.TemporaryDirectory(prefix="teco-foreign-") as name:
            folder = Path(name)
            asked = folder / "question.json"
            asked.write_text(json.dumps({"kind": kind, "root": str(self.root.resolve()), **question}), encoding="utf-8")
            try:
                return self._answer(asked, (folder / "answer.json", folder / "answer.stderr"))
            except OSError as error:
                raise ForeignError(f"could not be started: {error}; check the machine's memory and disk") from error

    def _answer(self, asked: Path, logs: tuple[Path, Path]) -> dict[str, Any]:
        limits = replace(self.limits, output=min(self.limits.output, _MOST))
        outcome, full = supervised(partial(self._start, asked), logs, limits, self.stop)
        if why := full or broken(outcome, limits) or _failed(outcome["code"], logs[1]):
            raise ForeignError(shortened(one_line(why), _SHOWN))
        try:
            found = read_json(logs[0])
        except ValueError as error:
            raise ForeignError("ended with exit code 0 and without an answer; do not end the process") from error
        if not isinstance(found, Mapping):
            raise ForeignError("gave an invalid answer; do not write to the process's files")
        if isinstance(said := found.get("error"), str):
            raise DataError(shortened(one_line(said), _SHOWN))
        return dict(found)

    def _start(self, asked: Path, report: int) -> tuple[Process, str]:
        command = [sys.executable, "-m", _ANSWERS, str(asked)]
        # The working folder comes first on its path, so that this zoo is imported.
        environment = {**handed_on(self.handed), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONSAFEPATH", None)
        return start_alone(settings_of(command, self.cores, self.limits, report), HOME, environment)


def _failed(code: int | None, stderr: Path) -> str:
    if code == 0:
        return ""
    native = " (`python -X faulthandler` shows where)" if crashed(code) else ""
    return f"{ending(code)}{native}: {last_line(stderr) or 'no output'}"


def leave_contributed(root: Path) -> None:
    """Remove a repository's ``contrib/`` and ``example/``, set by ``PYTHONPATH``, from the path of this process."""
    inside = [os.path.realpath(root / name) for name in ("contrib", "example")]

    def is_own(place: str) -> bool:
        real = os.path.realpath(place)
        return not any(real == folder or real.startswith(folder + os.sep) for folder in inside)

    sys.path[:] = filter(is_own, sys.path)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "utils" and hasattr(module, "__path__"):
            module.__path__ = list(filter(is_own, module.__path__))
    importlib.invalidate_caches()


def is_core(module: str) -> bool:
    """Return whether a dotted name belongs to the zoo's own ``utils``, which the check may import."""
    return _found(HOME, module) is not None


def contributed(module: str, root: Path) -> str | None:
    """Return the file of a module of ``contrib/utils``, relative to a repository; ``None`` if it is missing."""
    found = None if is_core(module) else _found(root / "contrib", module)
    return None if found is None else found.relative_to(root).as_posix()


def _found(folder: Path, module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != "utils" or not all(part.isidentifier() for part in parts):
        return None
    place = folder.joinpath(*parts)
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
