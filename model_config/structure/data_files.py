"""Which files of a model's folder are sample data: no rule reads them as documents or as code of the model."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from model_config.structure.flags import with_imports
from model_config.structure.readme import script_of, sections
from model_config.structure.source import Folder, SourceFile

DOCUMENTS = ("LICENCE", "LICENSE", "NOTICE", "README")
"""Names of documents about the data, without suffix."""

FOLDER = "data"
"""Folder of sample data in addition to those that the case's ``data_path`` names."""


def sample_data(folder: Folder) -> frozenset[str]:
    """Return the names of the files below the folders of sample data, relative to the root, without documents on it.

    A script there that a step or a command of the README runs, or that a script outside imports, is code, and so are
    the modules that it imports.
    """
    tops = {FOLDER, *(_top(path) for step in folder.case.steps for path in step.data_paths.values())} - {""}
    inside = [
        source for source in folder.files if _inner(source, folder).parts[0] in tops and _is_below(source, folder)
    ]
    inside = [source for source in inside if not _is_about_the_data(source, folder)]
    names = {source.name for source in inside}
    if not any(source.suffix == ".py" for source in inside):
        return frozenset(names)
    run = {folder.full(step.run_file) for step in folder.case.steps}
    run |= {folder.full(script_of(words)[0]) for part in sections(folder.readme) for _, words in part.commands}
    starts = [one for one in folder.files if one.suffix == ".py" and (one.name in run or one.name not in names)]
    code = {module.name for source in starts for module in with_imports(source, folder)}
    return frozenset(names - code)


def _top(path: str) -> str:
    """Return the first folder of a data path below the model's folder; "" if there is none."""
    parts = PurePosixPath(os.path.normpath(path)).parts
    is_file_here = len(parts) == 1 and "." in parts[0]
    return "" if not parts or parts[0] in ("..", "/", ".") or ":" in parts[0] or is_file_here else parts[0]


def _inner(source: SourceFile, folder: Folder) -> PurePosixPath:
    return PurePosixPath(source.name).relative_to(folder.run_dir)


def _is_about_the_data(source: SourceFile, folder: Folder) -> bool:
    """Return whether a file directly in a folder of data describes it, such as its licence: a document as others."""
    inner = _inner(source, folder)
    return len(inner.parts) == 2 and inner.stem.upper() in DOCUMENTS


def _is_below(source: SourceFile, folder: Folder) -> bool:
    return len(_inner(source, folder).parts) > 1
