"""The contract of a source, and the run of an export script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import Any, ClassVar

import engine
from engine import ModelError
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.text import shortened
from toolkit.adapt.work import Work

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"

MOST_COMMITTED = 2_000_000
"""Bytes of weights that the structure check accepts in git."""

_SECONDS = 3600.0
"""Time limit of an export script."""


@dataclass(frozen=True)
class Taken:
    """What is known of a model before its graph is read, as JSON values.

    Attributes:
        kind: of the source, in words. title: of the README. publisher: who published it and where; empty: unknown.
        licence: of the weights; empty: unknown. licence_from: where that was read.
        task: the task that the source states; empty: none. reason: why.
        random: whether the weights are random. committed: bytes of weights that would be copied into the repository.
        about: further facts, for the README and the page. rewritten: a line per node that was replaced by a verified
            equivalent, as the card lacks its operator. notes: lines on what could not be read.
    """

    kind: str
    title: str
    publisher: str = ""
    licence: str = ""
    licence_from: str = ""
    task: str = ""
    reason: str = ""
    random: bool = False
    committed: int = 0
    about: Mapping[str, str] = field(default_factory=dict)
    rewritten: Sequence[str] = ()
    notes: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Export:
    """The export script of a model, and what it needs.

    Attributes:
        script: its text; ``$paths`` stands for the lines that find the zoo's packages.
        stem: start of the names of the files that it writes.
        files: copied into the model's folder, by their names there. weights: name of that one of them which is the
            weights; empty: none. The repository's rules for git leave it out.
        params: flags of the case's export step. requirements: lines of ``requirements.txt``.
        flags: rows of the README's table: flag, meaning, default.
        text: sentences of the README on what the script does.
    """

    script: str
    stem: str
    files: Mapping[str, Path] = field(default_factory=dict)
    weights: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    flags: Sequence[tuple[str, str, str]] = ()
    text: str = ""

    @property
    def bytes(self) -> int:
        """Size of the weights; 0 if there are none."""
        return self.files[self.weights].stat().st_size if self.weights else 0

    @property
    def is_large(self) -> bool:
        """Whether the weights are too large for git."""
        return self.bytes > MOST_COMMITTED


class Source(ABC):
    """One kind of MODEL; an object holds the word as given.

    Attributes:
        prefix: before the first colon; empty: none. form: as help and errors show it. kind: in words.
    """

    prefix: ClassVar[str] = ""
    form: ClassVar[str]
    kind: ClassVar[str]

    def __init__(self, model: str) -> None:
        self.model = model

    @property
    def word(self) -> str:
        """The word without its prefix."""
        return self.model.removeprefix(f"{self.prefix}:") if self.prefix else self.model

    @classmethod
    def takes(cls, model: str) -> bool:
        """Return whether a word is of this kind."""
        return bool(cls.prefix) and model.startswith(f"{cls.prefix}:")

    @property
    @abstractmethod
    def usual_name(self) -> str:
        """Text from which the model's name is made."""

    @abstractmethod
    def inputs(self, work: Work) -> Mapping[str, Any]:
        """Return what :meth:`take` and :meth:`export` depend on, as JSON values."""

    @abstractmethod
    def take(self, work: Work) -> Taken:
        """Bring the model in. Raises TecoInferError if it is missing, invalid, or not allowed."""

    @abstractmethod
    def export(self, work: Work) -> Export:
        """Return the export script, after :meth:`take`."""


def rendered(template: str, /, **words: str) -> str:
    """Return a template with these words; ``$paths`` stays."""
    text = (TEMPLATES / f"{template}.tmpl").read_text(encoding="utf-8")
    return Template(text).substitute(words, paths="$paths")


def download_words(work: Work, name: str, file: Path | None) -> dict[str, str]:
    """Return the words of a template on weights that are too large for git, which the script brings if missing.

    Args:
        name: of the weights in the model's folder. file: the weights; ``None``: there are none.
    """
    if file is None or not file.is_file() or file.stat().st_size <= MOST_COMMITTED:
        return {"fetch": "", "also": "", "weights_of": "", "run": "cli.run(main)"}
    url = work.request.weights_url
    constants = [f"URL = {json.dumps(url)}  # of the weights, which are too large for git"]
    constants += [f"BYTES = {file.stat().st_size}", f'SHA256 = "{hash_files(file)}"']
    return {
        "fetch": "from utils.fetch import downloading\n",
        "also": "downloading, ",
        "weights_of": "\n".join(constants) + "\n\n",
        "run": f'cli.run(downloading(main, HERE / "{name}", URL, BYTES, SHA256))',
    }


def with_paths(script: str, paths: str) -> str:
    """Return a script with the lines that find the zoo's packages."""
    return script.replace("$paths", paths)


def run_script(script: Path, words: Sequence[str], root: Path) -> tuple[int, list[str], str]:
    """Run an export script in its folder; return exit code, lines, and the error's line.

    This zoo is on the path, then ``contrib/`` of a repository or project at ``root``, with its table of packages.

    Raises ModelError if it does not end in an hour, or cannot be started.
    """
    zoo = str(Path(engine.__file__).resolve().parents[1])
    contrib = [str(root / "contrib")] if (root / "contrib").is_dir() else []
    path = os.pathsep.join([zoo, *contrib, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(
            [sys.executable, script.name, *words],
            cwd=script.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{script} did not end in {_SECONDS:.0f} s; give a smaller model") from error
    except OSError as error:
        raise ModelError(f"{script} cannot be started ({error.strerror})") from error
    errors = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    return ran.returncode, ran.stdout.splitlines(), shortened(errors[-1], 600) if errors else ""
