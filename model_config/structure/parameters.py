"""Rules that compare ``model.yaml`` with the folder: script flags and data paths."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path

from model_config.cases.case_file import MOST_TROUBLES, Entry, read_entries
from model_config.cases.config import STEPS, relative
from model_config.structure.flags import has_flag, instead, known_flags
from model_config.structure.readme import DATA_SECTION, sections
from model_config.structure.source import Broken, Folder
from tecoinfer_modelzoo.text import shortened, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, yaml_text
from utils.fetch import is_fetched_path, packages, read_contrib


def check_flags(folder: Folder) -> Iterator[Broken]:
    """Every parameter of ``model.yaml`` is a flag of the step's script, where the script's flags can be read."""
    for step, source in folder.scripts:
        flags = known_flags(source, folder)
        names = step.params if flags is not None else ()
        without = (name for name in names if not has_flag(f"--{name}", flags or frozenset()))
        for name in islice(without, MOST_TROUBLES):
            file, line = place(folder, step.name, name)
            fix = instead(f"--{name}", flags or frozenset())
            yield Broken(file, line, f"{STEPS[step.name]}: {step.run_file} has no flag --{shortened(name, 200)}", fix)


def check_tasks(folder: Folder) -> Iterator[Broken]:
    """A task of ``contrib/utils`` that a script runs can be imported, in a separate process with a step's limits."""
    for _, source in folder.scripts:
        known_flags(source, folder)
    for file, reason in folder.tasks.troubles.items():
        yield Broken(
            file, 0, f"cannot be imported: {reason}", "let the module only define objects, without work on import"
        )


def check_data(folder: Folder) -> Iterator[Broken]:
    """The ``data_path`` of a step exists, is absolute or in a package, or is described in section 2.4 of the README."""
    lines = [text for part in sections(folder.readme) if part.heading == DATA_SECTION for _, text in part.lines]
    for step in folder.case.steps:
        for name, text in step.data_paths.items():
            if _is_there(folder, text) or any(text in line for line in lines):
                continue
            several = isinstance(step.params["data_path"], Mapping)
            file, line = place(folder, step.name, f"data_path.{name}" if several else "data_path")
            message = f"data_path {shown_value(text)} of {STEPS[step.name]} does not exist in {folder.run_dir}"
            own = f"add the data, or name {shown_value(text)} in section 2.4 of the README"
            fix = "name a package that 'teco fetch' lists" if is_fetched_path(text) else own
            yield Broken(file, line, message, fix)


def _is_there(folder: Folder, path: str) -> bool:
    """Return whether a data path exists or is empty; an empty one is reported when the case is read."""
    if is_fetched_path(path):
        read_contrib(folder.root)
        return path.removeprefix("fetch:").partition("/")[0] in packages()
    return not path or os.path.isabs(path) or os.path.exists(folder.path / path)


def place(folder: Folder, step: str, name: str) -> tuple[str, int]:
    """Return the file that defines the case, relative to the root, and the line of a step's parameter."""
    source, key = folder.case.source, f"{STEPS[step]}.params"
    try:
        state = os.stat(source)
        entries = _read(source, (state.st_mtime_ns, state.st_size))
    except (OSError, YamlError):  # the case was not read from a file, or not from this one
        entries = ()
    for entry in entries:
        if entry.name == folder.case.name:
            direct = entry.line_of(f"{key}.{name}")
            line = entry.line_of(f"{key}.others.{name}") if direct == entry.line_of(key) else direct
            return relative(source, folder.root), line
    return relative(source, folder.root), folder.case.line


@lru_cache(maxsize=2)
def _read(source: Path, _state: tuple[int, int]) -> tuple[Entry, ...]:
    """Return the entries of a file; cached, as each finding of a case needs a line of it."""
    return tuple(read_entries(yaml_text(source))[0])
