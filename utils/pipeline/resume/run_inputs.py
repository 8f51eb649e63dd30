"""Inputs of an evaluation other than its data: files that its flags name, its code, and files that its code opens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine import engine_class, find_pass, provider
from utils.code_files import ZOO, ZOO_PACKAGES, file_of, is_installed
from utils.identity import Inputs, Part, inputs_of, names_files, part_of
from utils.pipeline.resume.files_read import FilesRead
from utils.tasks.base import Task


class RunInputs:
    """The inputs of a task's run; a context manager that records opened files (``read``) from its construction on."""

    def __init__(self, task: Task) -> None:
        opt = task.options
        self._named = {flag.key: getattr(opt, flag.key) for flag in task.flags if not flag.writes}
        written = [Path(str(getattr(opt, flag.key))) for flag in task.flags if flag.writes]
        functions = task.sources()
        foreign = None if provider(opt.target) == "built-in" else engine_class(opt.target)
        pass_path = find_pass(opt.pass_path)
        functions += [] if foreign is None else [foreign]
        data = opt.paths.values()
        self._inputs = inputs_of(opt.models, self._named, functions, pass_path=pass_path, data=data)
        if foreign is not None and (file := file_of(foreign)) is not None:
            self._inputs.parts |= {f"engine {opt.target}": part_of(file)}
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        below = [Path(), *(path.parent for path in opt.models.values()), *([Path(script).parent] if script else [])]
        known = [*(part.path for part in self._inputs.parts.values()), *(ZOO / name for name in ZOO_PACKAGES)]
        alone = script is not None and not is_installed(Path(os.path.realpath(script)))
        self.read = FilesRead(below, [*known, *written], script=alone)
        self._below = {os.path.realpath(one) for one in below}

    @property
    def contents(self) -> dict[str, str]:
        """Hashes of the inputs known from the start, by name."""
        return self._inputs.contents

    def by_content(self, key: str) -> bool:
        """Return whether a flag's value names files, whose contents are compared instead of the value."""
        return key in self._named and names_files(self._named[key])

    def leave_out(self, written: Iterable[Path], data: Iterable[Path]) -> None:
        """Ignore files at these places: the run's outputs, and its data, which has a fingerprint.

        The folder of a data file is ignored too, as a list or a table often names files in it, unless it is the folder
        of the script or the model.
        """
        places = [*written]
        for path in data:
            folder = path.expanduser().parent
            with_folder = path.is_file() and os.path.realpath(folder) not in self._below
            places += [path, folder] if with_folder else [path]
        self.read.leave_out(places)

    def changed(self, more: Mapping[str, Part]) -> Path | None:
        """Return a file of the run, or of ``more``, that has changed; ``None``: there is none."""
        return self._inputs.changed() or Inputs(more, {}).changed()

    def __enter__(self) -> RunInputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.read.close()
