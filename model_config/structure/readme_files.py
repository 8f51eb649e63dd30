"""Rule for a model's README: its commands name model files and data that are there, or whose origin it describes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from model_config.structure.files import WEIGHTS
from model_config.structure.readme import DATA_SECTION, STEP_SECTIONS, Section, script_of, sections
from model_config.structure.source import Broken, Folder, inside
from tecoinfer_modelzoo.text import shown_value
from utils.fetch import is_fetched_path

READ = ("--ckpt", "--data_path")
"""Flags of the scripts whose values are read."""

STAND_IN = re.compile(r"[<>$*{}…]|\.\.\.|path/to|your[_/]|^[~/]|^\w:[\\/]")
"""Part of a word that stands for a path of the reader, or of a path outside the repository."""

_FORMS = frozenset(("float16", "float32", "bfloat16", "int8", "dyn", "static"))
"""Words at the end of the name of a model file that differ between the forms of one model."""


def check_files(folder: Folder) -> Iterator[Broken]:
    """Model files and data in the README's commands are in the folder, are made by the export, or are described."""
    names = [step.run_file for step in folder.case.steps]
    for part in sections(folder.readme):
        for line, command in part.commands:
            script, arguments = script_of(command)
            if script.removeprefix(f"{folder.run_dir}/").removeprefix("./") not in names:
                continue
            for word in _paths(arguments):
                if not _is_known(folder, part, word):
                    yield _broken(folder, line, word)


def _broken(folder: Folder, line: int, word: str) -> Broken:
    weights = WEIGHTS.fullmatch(PurePosixPath(word).suffix) is not None
    section = STEP_SECTIONS["export"] if weights else DATA_SECTION
    where = f"{section!r} says how to get it" if weights else f"{section!r} names it and says where it comes from"
    fix = f"name a file that is there, or add it so that {where}"
    return folder.readme.broken(line, f"the command reads {shown_value(word)}, which is not in the folder", fix)


def _paths(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the paths after the flags that read files; the name of ``NAME=PATH`` is removed."""
    reading = False
    for word in arguments:
        flag, equals, value = word.partition("=")
        if word.startswith("-"):
            reading = flag in READ
            word = value if equals else ""
        elif re.fullmatch(r"\w+=.+", word):
            word = value
        if reading and word:
            yield word


def _is_known(folder: Folder, part: Section, word: str) -> bool:
    if is_fetched_path(word) or STAND_IN.search(word) or "\0" in word:
        return True
    places = [folder.path / word, folder.root / word]
    if any(os.path.exists(place) and inside(place, folder.root) for place in places):
        return True
    return (
        _is_made(folder, part, word) if WEIGHTS.fullmatch(PurePosixPath(word).suffix) else _is_described(folder, word)
    )


def _is_made(folder: Folder, part: Section, word: str) -> bool:
    """Return whether a file that is not there is a form of a model of the case, or made by the export.

    Commands and their output in section 2.3 show what the export makes, but its sentences may be those of a template.
    In other sections a command of the export in the same section makes the files.
    """
    wanted, exports = _stem(word), [step.run_file for step in folder.case.steps if step.name == "export"]
    if any(_stem(ckpt) == wanted for step in folder.case.steps for ckpt in step.ckpts.values()):
        return True
    if any(script_of(command)[0] in exports for _, command in part.commands):
        return True
    made = [one for one in sections(folder.readme) if one.heading == STEP_SECTIONS["export"]]
    words = {name for one in made for _, command in one.commands for name in command}
    in_prose = {line for one in made for line, _ in one.prose}
    shown = [text for one in made for line, text in one.lines if line not in in_prose]
    return any(wanted in re.split(r"[=/:]", one) for one in words) or any(
        os.path.basename(word) in one for one in shown
    )


def _stem(path: str) -> str:
    """Return the name of a model file without the words of its form, and any other name as it is."""
    name = os.path.basename(path)
    if not name.endswith(".onnx"):
        return name
    words = name.removesuffix(".onnx").split("_")
    while len(words) > 1 and words[-1] in _FORMS:
        words.pop()
    return "_".join(words)


def _is_described(folder: Folder, word: str) -> bool:
    """Return whether section 2.4 names the path, or a folder above it that is not committed."""
    lines = [text for part in sections(folder.readme) if part.heading == DATA_SECTION for _, text in part.lines]
    above = [str(path) for path in PurePosixPath(word).parents if str(path) not in (".", "..")]
    missing = [path for path in above if not os.path.exists(folder.path / path)]
    return any(path in line for path in (word, *missing) for line in lines)
