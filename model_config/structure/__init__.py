"""Rules for the structure of a model's folder: one function per rule (:data:`CASE_RULES`, :data:`FILE_RULES`).

``check_structure`` checks the folder of a case, ``check_shared`` files outside these folders (``contrib/utils/...``).
Files of a model's folder are neither run nor imported, and nothing is downloaded; invalid content is a finding, not an
error. The task of a script is imported for its flags, for ``contrib/utils`` in a limited process (:mod:`.contributed`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from model_config.cases.config import ROOT, Case
from model_config.remembered import Remembered, key_of
from model_config.results import Finding
from model_config.run.foreign import Foreign
from model_config.structure import examples, files, parameters, readme, readme_files, requirements, scripts
from model_config.structure.data_files import sample_data
from model_config.structure.source import MOST_FOUND, Broken, Folder, SourceFile
from tecoinfer_modelzoo.text import shortened

__all__ = ["CASE_RULES", "FILE_RULES", "Rule", "check_shared", "check_structure", "rules"]

CASE_RULES: dict[str, Callable[[Folder], Iterable[Broken]]] = {
    "layout": files.check_layout,
    "required-files": files.check_required,
    "names": files.check_names,
    "sample-data": parameters.check_data,
    "data-size": files.check_data_size,
    "yaml-flags": parameters.check_flags,
    "task-import": parameters.check_tasks,
    "readme-headings": readme.check_headings,
    "readme-order": readme.check_order,
    "readme-text": readme.check_sections,
    "readme-steps": readme.check_steps,
    "readme-commands": readme.check_commands,
    "readme-files": readme_files.check_files,
    "readme-open": readme.check_open,
    "requirements-lines": requirements.check_lines,
    "requirements-twice": requirements.check_duplicates,
    "requirements-torch": requirements.check_torch,
    "requirements-versions": requirements.check_versions,
    "engine": examples.check_engine,
    "script-length": examples.check_length,
    "own-loop": examples.check_loop,
}
"""Rules for a model's folder as a whole."""

FILE_RULES: dict[str, Callable[[SourceFile], Iterable[Broken]]] = {
    "readable": files.check_readable,
    "size": files.check_size,
    "text": files.check_text,
    "syntax": scripts.check_syntax,
    "links": readme.check_links,
    "absolute-path": scripts.check_absolute,
    "debug": scripts.check_debug,
    "tls": scripts.check_tls,
    "unsafe": scripts.check_unsafe,
    "device": scripts.check_devices,
}
"""Rules for a single file, in a model's folder or shared."""

DATA_RULES = {name: FILE_RULES[name] for name in ("readable", "size")}
"""Rules for sample data, whose files are neither documents nor code, whatever their names."""

OF_CONTENT = frozenset(("text", "syntax", "absolute-path", "debug", "tls", "unsafe", "device"))
"""Rules that read nothing but a file's name and content: one that broke none of them breaks none the next time."""

SHARED_RULES: dict[str, Callable[[SourceFile], Iterable[Broken]]] = {"package": files.check_package}
"""Rules for shared files only."""


_LONGEST = 1000
"""Maximum characters of a message; longer ones are shortened in the middle."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Documentation of a rule: name, description in one sentence, and whether it applies to shared files."""

    name: str
    description: str
    shared: bool


def rules() -> list[Rule]:
    """Return all rules in the order of checking."""
    tables = ((CASE_RULES, False), (FILE_RULES, True), (SHARED_RULES, True))
    return [
        Rule(name, (check.__doc__ or "").splitlines()[0], shared)
        for table, shared in tables
        for name, check in table.items()
    ]


def check_structure(case: Case, root: Path = ROOT, foreign: Foreign | None = None) -> list[Finding]:
    """Return all rule violations of a case's folder, sorted by file and line.

    Args:
        case: the case; its folder need not exist.
        root: the repository that contains ``case.run_dir``; files that git ignores are skipped.
        foreign: queries contributed code; default: with the limits of a step.

    Raises:
        KeyboardInterrupt: ``foreign.stop`` was set.
    """
    folder = Folder(case, root, foreign)
    broken = {name: list(islice(check(folder), MOST_FOUND)) for name, check in CASE_RULES.items()}
    found = [_finding(name, one) for name, places in broken.items() for one in places]
    data = sample_data(folder)
    written = [source for source in folder.files if source.name not in data]
    samples = [source for source in folder.files if source.name in data]
    of_files = (*_of_files(written, FILE_RULES), *_of_files(samples, DATA_RULES))
    return sorted({*found, *of_files}, key=_place)  # a file that several scripts import is reported several times


def check_shared(
    names: Iterable[str | PurePosixPath], root: Path = ROOT, remembered: Remembered | None = None
) -> list[Finding]:
    """Return the rule violations of files outside the models' folders, such as a data set in ``contrib/utils``.

    Args:
        names: files relative to the root, as ``git diff --name-only`` lists them; deleted files are skipped.
        remembered: files whose content broke no rule in earlier checks; default: every rule reads every file.
    """
    sources = [SourceFile(str(name), root) for name in names if os.path.lexists(root / name)]
    return sorted(_of_files(sources, {**FILE_RULES, **SHARED_RULES}, remembered), key=_place)


def _of_files(
    sources: Iterable[SourceFile],
    table: dict[str, Callable[[SourceFile], Iterable[Broken]]],
    remembered: Remembered | None = None,
) -> Iterator[Finding]:
    for source in sources:
        # Without data a rule may depend on why: the file is too large, cannot be read, or links elsewhere.
        key = key_of("clean", source.name, source.data) if remembered is not None and source.data else ""
        is_clean = remembered is not None and bool(key) and remembered.find(key) is True
        broken = 0
        for name, check in table.items():
            if is_clean and name in OF_CONTENT:
                continue
            for one in islice(check(source), MOST_FOUND):
                broken += name in OF_CONTENT
                yield _finding(name, one)
        if remembered is not None and key and not is_clean and not broken:
            remembered.keep(key, True)


def _finding(rule: str, broken: Broken) -> Finding:
    message, fix = (shortened(_plain(text), _LONGEST) for text in (broken.message, broken.fix))
    return Finding(_plain(broken.file), broken.line, rule, message, fix)


def _plain(text: str) -> str:
    """Return a text with non-printable characters escaped, so that terminals and files accept any file name."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _place(finding: Finding) -> tuple[str, int, str, str]:
    return finding.file, finding.line, finding.rule, finding.message
