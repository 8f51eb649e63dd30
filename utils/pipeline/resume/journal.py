"""The journal of an evaluation: its finished steps, kept so that a run that was killed goes on where it was.

``journal.jsonl`` (``journal-<rank>of<size>.jsonl`` where several processes share a folder) holds one line per finished
step, behind a first line that says of which run it is. Every line is a CRC-32 in hex, a space and a JSON object.
Lines are only ever appended, each by one write as soon as its step is done, so a process killed at any moment leaves
whole lines and at most one that is cut, which the next run drops. What a power failure takes is bounded by the
interval of the fsync; there blocks may reach the disk out of order, so from the first damaged line on everything is
dropped, with a warning, and run again: that costs time, but never a result.
"""

from __future__ import annotations

import json
import os
import re
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from engine import ConfigError
from tecoinfer_modelzoo.text import reason_of, shortened
from utils.pipeline.resume.journal_steps import decoded, encoded
from utils.pipeline.resume.locks import open_locked, release
from utils.pipeline.run.run_state import Step

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Journal", "Step"]

KIND = "evaluation"
SCHEMA_VERSION = 3
"""Version of the lines' layout; it rises when a field changes its meaning or goes. Version 1 did not say which outputs
held NaN, and version 2 not what was in the files of a run, so that nobody knows what their steps are worth."""

Facts: TypeAlias = Callable[[], Mapping[str, str]]
"""What is known by now of what a run reads as it goes, by name."""

_TOLD, _HASH, _DIGITS = 4, 64, 16
"""Files that differences name, characters of a hash, and how many of them are shown."""

FILE_NAME = re.compile(r"journal(?:-\d+of(\d+))?\.jsonl")
_OWN = re.compile(r"journal(?:-\d+of\d+)?\.(?:jsonl|new)")
"""The names of all files that journals make in their folder."""


def refuse_own(folder: Path, outputs: Mapping[str, Path | None]) -> None:
    """Refuse files that would be written over a journal.

    Args:
        folder: of ``--resume``. outputs: by their flags.

    Raises:
        ConfigError: it names the flag and the file.
    """
    for flag, path in outputs.items():
        if path is None or not _OWN.fullmatch(path.name.lower()):
            continue
        if os.path.realpath(path.parent) == os.path.realpath(folder):
            raise ConfigError(f"{flag} {path}: the journal of --resume {folder} has this name; name another file")


class Journal:
    """The finished steps of one run; made by :meth:`open`, and a context manager.

    It is used from one thread. While it is open no other process can open it.

    Attributes:
        path: the file.
        done: how many steps are finished.
        hints: what the runs before this one found odd, where one of them came to its end.
        facts: what the finished steps say of what they were computed from, by name; the identity did not say it yet.
    """

    def __init__(self, path: Path, handle: int, found: _Found, sync_every: float, facts: Facts) -> None:
        self.path = path
        self.done = found.done
        self.hints = list(found.hints)
        self.facts = dict(found.facts)
        self._facts, end = facts, found.end
        self._handle = handle
        self._end = self._synced = end
        self._sync_every = sync_every
        self._failed: OSError | None = None
        self._stop = threading.Event()
        self._syncing: threading.Thread | None = None

    @classmethod
    def open(
        cls, folder: Path, identity: Mapping[str, Any], *, sync_every: float = 1.0, facts: Facts = dict
    ) -> Journal:
        """Continue the journal in a folder, or start one; the folder is made where there is none.

        Args:
            folder: where journals lie.
            identity: what makes a run this one, plain values by their names: model, data set, batch size ... ``rank``
                and ``size`` (0 and 1 where they are not given) also choose the file.
            sync_every: seconds after which a finished step is on the disk at the latest (fsync); 0 means at once.
            facts: what is known only later of what the run reads; each step is kept with what came to be known till it
                ended.

        Raises:
            ConfigError: the journal is of another run (the text says which keys differ), is in use by another
                process, is no journal, or cannot be written.
        """
        size = int(identity.get("size", 1))
        path = folder / ("journal.jsonl" if size == 1 else f"journal-{identity.get('rank', 0)}of{size}.jsonl")
        with _writable(path):
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_other_sizes(folder, size)
            handle = _open_or_create(path, identity)
            try:
                found = _check(path, identity)
                dropped = _drop_from(path, handle, found.end)
                if dropped > 1:
                    warnings.warn(
                        f"{path} line {found.done + 2} is damaged; it and the {dropped - 1} lines behind it are "
                        "dropped, and their steps are run again",
                        stacklevel=2,
                    )
            except BaseException:
                release(handle)
                raise
        return cls(path, handle, found, sync_every, facts)

    def replayed(self) -> Iterator[Step]:
        """Yield the finished steps from the first on; they are read one by one.

        Raises:
            ConfigError: the file cannot be read, or was changed by something else since it was opened.
        """
        count = 0
        for _, content in islice(_lines(self.path), 1, self.done + 1):
            try:
                step = decoded(content)
            except (ValueError, TypeError, LookupError) as error:
                raise self.wrong(count, reason_of(error)) from error
            yield step
            count += 1
        if count < self.done:
            raise ConfigError(f"{self.path} line {count + 2} was changed under the run; delete the file and start anew")

    def wrong(self, step: int, why: str) -> ConfigError:
        """Return the error that a finished step (from 0 on) is none of this run: nobody knows what it is worth."""
        return ConfigError(
            f"journal {self.path} line {step + 2} is no step of this run: {why}; delete the file and start anew"
        )

    def check_facts(self, now: Mapping[str, str]) -> None:
        """Refuse facts that are not what they were when the finished steps were computed.

        Raises:
            ConfigError: it names those that differ.
        """
        self._new_facts(now)

    def _new_facts(self, now: Mapping[str, str]) -> dict[str, str]:
        differ = [name for name, value in now.items() if self.facts.get(name, value) != value]
        if differ:
            raise _other_run(self.path, [_difference(name, self.facts[name], now[name]) for name in differ[:_TOLD]])
        return {name: value for name, value in now.items() if name not in self.facts}

    def append(self, step: Step) -> None:
        """Keep the step after the last one; it is in the file when this returns, and on the disk soon after.

        Raises:
            InputError: the record is not of plain arrays, or not of the samples that made it.
            ConfigError: the file cannot be written, as on a full disk; the steps before stay valid. Or a fact is not
                what it was for them.
        """
        new = self._new_facts(self._facts())
        line = _line({"step": self.done, **encoded(step), **({"facts": new} if new else {})})
        self.facts |= new
        with _writable(self.path, self.done):
            if self._failed is not None:
                raise self._failed
            self._write(line)
            self._end += len(line)
            self.done += 1
            if not self._sync_every:
                os.fsync(self._handle)
                self._synced = self._end
        if self._sync_every and self._syncing is None:
            self._syncing = threading.Thread(target=self._keep_synced, name="journal", daemon=True)
            self._syncing.start()

    def keep_hints(self, hints: Sequence[str]) -> None:
        """Keep what a run that came to its end found odd: one that takes all steps from here cannot find it again.

        Raises:
            ConfigError: the file cannot be written.
        """
        self.hints = list(hints)
        if not hints:
            return
        line = _line({"hints": self.hints})
        with _writable(self.path, self.done):
            self._write(line)
            self._end += len(line)

    def close(self) -> None:
        """Put everything on the disk and let other processes have the file; a second call does nothing.

        Raises:
            ConfigError: the disk did not take it.
        """
        if self._handle < 0:
            return
        self._stop.set()
        if self._syncing is not None:
            self._syncing.join()
        self._sync()
        handle, self._handle = self._handle, -1
        release(handle)
        if self._failed is not None:
            with _writable(self.path, self.done):
                raise self._failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.pwrite(self._handle, line[written:], self._end + written)
        except OSError:
            with suppress(OSError):  # a cut line that stays is dropped when the journal is opened again
                os.ftruncate(self._handle, self._end)
            raise

    def _keep_synced(self) -> None:
        """Sync beside the run, which must not wait for the disk, and also while a long step appends nothing."""
        while not self._stop.wait(self._sync_every):
            self._sync()

    def _sync(self) -> None:
        end = self._end
        if end == self._synced:
            return
        try:
            os.fsync(self._handle)
            self._synced = end
        except OSError as error:  # raised by the next append, or by close
            self._failed = error


@contextmanager
def _writable(path: Path, done: int | None = None) -> Iterator[None]:
    """Make one line of what the system has against the file."""
    try:
        yield
    except OSError as error:
        kept = "" if done is None else f" and run the same command again: it goes on after the {done} steps kept in it"
        raise ConfigError(
            f"journal {path} cannot be written: {error.strerror}; see to space and permissions of its folder{kept}"
        ) from error


def _refuse_other_sizes(folder: Path, size: int) -> None:
    """Raise where the folder's journals share the data set out among another number of processes."""
    for other in sorted(folder.glob("journal*.jsonl")):
        found = FILE_NAME.fullmatch(other.name)
        theirs = int(found[1] or 1) if found else size
        if theirs != size:
            raise ConfigError(
                f"journal {other} was made by another run: size is {theirs} there and {size} here; use another folder, "
                "or delete the journals in this one"
            )


def _open_or_create(path: Path, identity: Mapping[str, Any]) -> int:
    """Return the locked journal; a new one appears under its name with its first line, or not at all."""
    while True:
        with suppress(FileNotFoundError):
            return open_locked(path, create=False)
        new = path.with_suffix(".new")
        handle = open_locked(new, create=True)
        if path.exists():  # another run was faster
            new.unlink()
            release(handle)
            continue
        try:
            header = _line({"journal": KIND, "schema_version": SCHEMA_VERSION, "identity": dict(identity)})
            os.ftruncate(handle, 0)
            written = 0
            while written < len(header):
                written += os.pwrite(handle, header[written:], written)
            os.fsync(handle)
            new.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            release(handle)
            raise
        return handle


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Found(NamedTuple):
    """How many steps a journal holds, where the last of them ends, the hints behind it, and what steps say of files."""

    done: int
    end: int
    hints: Sequence[str]
    facts: Mapping[str, str]


def _check(path: Path, identity: Mapping[str, Any]) -> _Found:
    """Return what the journal of this run holds."""
    lines = _lines(path)
    end, header = next(lines, (0, {}))
    if header.get("journal") != KIND:
        raise ConfigError(f"{path} does not begin like a journal; use another folder, or delete this file")
    if header.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"journal {path} has schema version {header.get('schema_version')}, this zoo writes {SCHEMA_VERSION}; "
            "use another folder, or delete this file"
        )
    theirs, ours = header.get("identity"), json.loads(_json(dict(identity)))
    if not isinstance(theirs, dict):
        raise ConfigError(f"journal {path} does not say of which run it is; use another folder, or delete this file")
    if differ := _differences(theirs, ours):
        raise _other_run(path, differ)
    done, hints, facts = 0, list[str](), dict[str, str]()
    for line_end, content in lines:
        if set(content) == {"hints"} and isinstance(content["hints"], list):
            hints = [hint for hint in content["hints"] if isinstance(hint, str)]
            break
        number = content.get("step")
        if isinstance(number, bool) or number != done:  # a line is missing: the steps from there on are run again
            break
        done, end = done + 1, line_end
        told = content.get("facts", {})
        if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
            raise ConfigError(
                f"journal {path} line {done + 1} is no step of this run: facts are no texts; delete the file and "
                "start anew"
            )
        facts |= told
    return _Found(done, end, hints, facts)


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return what two identities do not have in common; of files by name, it is told which."""
    found = []
    for key in {**ours, **theirs}:
        one, other = theirs.get(key), ours.get(key)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            names = [name for name in {**other, **one} if one.get(name) != other.get(name)]
            found += [_difference(name, one.get(name), other.get(name)) for name in names[:_TOLD]]
            if len(names) > _TOLD:
                found.append(f"{len(names) - _TOLD} more files are not the same there and here")
        else:
            found.append(f"{key} is {one!r} there and {other!r} here")
    return found


def _difference(name: str, there: str | None, here: str | None) -> str:
    texts = ("missing" if text is None else text if len(text) != _HASH else text[:_DIGITS] for text in (there, here))
    one, other = (repr(shortened(text)) for text in texts)
    return f"{name} is {one} there and {other} here"


def _other_run(path: Path, differences: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"journal {path} was made by another run: {'; '.join(differences)}; use another folder, or delete this file"
    )


def _drop_from(path: Path, handle: int, end: int) -> int:
    """Cut the file there and return how many lines, whole or not, that took."""
    with path.open("rb") as file:
        file.seek(end)
        dropped = sum(1 for _ in file)
    if dropped:
        os.ftruncate(handle, end)
    return dropped


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the end and the content of every line, up to the first that is cut or damaged."""
    end = number = 0
    with path.open("rb") as file:
        for line in file:
            checksum, text = line[:9], line[9:-1]
            if line[-1:] != b"\n" or checksum != b"%08x " % zlib.crc32(text):
                return
            end, number = end + len(line), number + 1
            try:
                content = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"{path} line {number} is no JSON ({reason_of(error)}); use another folder, or delete this file"
                ) from error
            if not isinstance(content, dict):
                raise ConfigError(f"{path} line {number} is no JSON object; use another folder, or delete this file")
            yield end, content


def _line(content: dict[str, Any]) -> bytes:
    text = _json(content).encode("ascii")  # anything else is escaped, names that are not UTF-8 on disk too
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), default=str)
