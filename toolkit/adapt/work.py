"""The request of ``teco adapt``, and the working folder with the results of the stages (``adapt.json``)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo import version
from tecoinfer_modelzoo.files import hash_files, read_regular, write_file
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.trees import below
from toolkit.scaffold import LONGEST
from utils.fetch import is_fetched_path

STATE = "adapt.json"
"""File of the state in the working folder."""

SCHEMA_VERSION = 1
"""Version of the state's layout; raised when a field is removed or changes its meaning."""

DONE, NOTED, FAILED = "done", "noted", "failed"
"""Status of a stage: all is well; it tells of something that does not stop the others; it has to be looked at."""

HASHED = 1 << 30
"""Bytes of a folder of data up to which its contents are hashed; of a larger one, sizes and times of the files."""


@dataclass(frozen=True)
class Request:
    """Arguments of the command.

    Attributes:
        model: as given: a path, or a word with the prefix of a source. name: of the model's folder and case.
        task, domain: names; empty: to be found. data, golden: as given; empty: none. defaults: ``FLAG=VALUE``.
        weights: of a network by name: a published name, a file, ``random``; empty: the source's own.
        notes: metadata that an ONNX file lacks: JSON values by key.
        dims: sizes of dynamic dimensions. shapes, dtypes: of the inputs of a torch module.
        contrib: whether the model is created below ``contrib/``. root: the repository or project.
        source, licence, data_source: what only a person knows; empty: not given. weights_url: where weights are
            downloaded that are too large for git.
        batch: samples per call to the whole card. samples: random samples of a functional case.
    """

    model: str
    name: str
    root: Path
    task: str = ""
    domain: str = ""
    data: str = ""
    golden: Path | None = None
    weights: str = ""
    contrib: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    defaults: Sequence[str] = ()
    source: str = ""
    licence: str = ""
    data_source: str = ""
    weights_url: str = ""
    batch: int = 16
    samples: int = 64

    def part(self, *names: str) -> dict[str, Any]:
        """Return some attributes as JSON values, for the inputs of a stage."""
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def usable_name(text: str) -> str:
    """Return a text as the name of a model: lower case, digits and underscores, beginning with a letter."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()
    name = name if name[:1].isalpha() else f"model_{name}" if name else "model"
    return name[:LONGEST].rstrip("_")


@dataclass(frozen=True)
class Outcome:
    """What a stage found.

    Attributes:
        line: one line. facts: results for later stages and the page, as JSON values.
        files: written files, in the working folder or below the root. notes: further lines, for the page.
        status: :data:`DONE`, :data:`NOTED` or :data:`FAILED`.
    """

    line: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[Path] = ()
    notes: Sequence[str] = ()
    status: str = DONE


@dataclass
class Record:
    """A stage's outcome in the state, with the hash of its inputs, those of its files, and its wall seconds."""

    inputs: str
    line: str
    status: str
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Work:
    """A run: the request, the working folder, and the outcomes of stages so far.

    Attributes:
        folder: the working folder. records: by stage. written: SHA-256 of the files in the model's folder as they were
            written; a file that differs was edited by hand and is kept. case: the entry in ``model.yaml`` as written.
        ends: by stage, how often the process ended in it without a word, such as by a crash of native code.
        ask: returns the answer to a question, or ``None`` where nobody can be asked.
    """

    request: Request
    folder: Path
    records: dict[str, Record] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    case: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    ask: Callable[[str, Sequence[str], str], str | None] = lambda question, choices, usual: None

    def facts(self, stage: str) -> Mapping[str, Any]:
        """Return the results of a stage; empty if it has not run."""
        found = self.records.get(stage)
        return {} if found is None else found.facts

    def save(self) -> None:
        """Write the state atomically. Raises ConfigError if the folder cannot be written."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "kind": "adapt",
            "version": version(),
            "model": self.request.model,
            "name": self.request.name,
            "written": self.written,
            "case": self.case,
            "ends": self.ends,
            "stages": {name: asdict(record) for name, record in self.records.items()},
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, sort_keys=False) + "\n"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")  # a working folder is not part of a repository
            write_file(self.folder / STATE, text.encode(errors="backslashreplace"))
        except OSError as error:
            raise ConfigError(f"{self.folder} cannot be written: {error.strerror}; choose another --out") from error


def open_work(request: Request, folder: Path) -> Work:
    """Return the work in a folder, with what earlier runs for the same model left there.

    Raises:
        ConfigError: the folder has the state of another model, or one that cannot be read.
    """
    work, path = Work(request, folder), folder / STATE
    if not path.exists():
        return work
    try:
        found = plain_json(read_regular(path).decode())
        records = {str(name): Record(**record) for name, record in found["stages"].items()}
        model, name, written, case = (found[key] for key in ("model", "name", "written", "case"))
        ends = {str(key): int(count) for key, count in found.get("ends", {}).items()}
        known = found["schema_version"] == SCHEMA_VERSION
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a state of teco adapt ({error}); remove it, or choose another --out"
        ) from error
    if model != request.model or name != request.name:
        if not records and not written:
            return work  # no stage of it ended, such as after a wrong path
        raise ConfigError(
            f"{path} is of another model, {model!r} named {name!r}; choose another folder with --out DIR, or remove it"
        )
    if known:
        work.records, work.written, work.case, work.ends = records, dict(written), str(case), ends
    return work


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(_plain(value), sort_keys=True).encode(errors="backslashreplace")).hexdigest()


def content_of(path: str | Path) -> str:
    """Return a hash of a file's or a folder's content; a ``fetch:`` path is fixed by its package, and stays as text."""
    if not str(path) or is_fetched_path(path):
        return str(path)
    place = Path(path)
    if place.is_file():
        return hash_files(place)
    if not place.is_dir():
        return "missing"
    files = [one for one in sorted(below(place)) if one.is_file()]
    whole = sum(one.stat().st_size for one in files) <= HASHED
    rows = [(str(one.relative_to(place)), _state_of(one, whole)) for one in files]
    return digest(rows)


def _state_of(file: Path, whole: bool) -> str:
    if whole:
        return hash_files(file)
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns}"
