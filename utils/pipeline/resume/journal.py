"""The journal of an evaluation: its finished steps, from which a run that was killed is resumed.

``journal.jsonl`` (``journal-<rank>of<size>.jsonl`` for several processes) has a first line that identifies the run,
then one line per finished step. Every line is a CRC-32 in hex, a space and a JSON object. Lines are only appended, each
by one write when its step is done, so a process killed at any moment leaves complete lines and at most one incomplete
line, which the next run drops. A power failure loses at most the steps since the last fsync; blocks may have reached
the disk out of order, so all lines from the first damaged one on are dropped with a warning, and their steps run again.
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
from typing import Any, NamedTuple, TypeAlias

from engine import ConfigError
from tecoinfer_modelzoo.text import reason_of, shortened
from utils.pipeline.resume.journal_steps import decoded, encoded
from utils.pipeline.resume.locks import open_locked, release
from utils.pipeline.run.run_state import Step

__all__ = ["Journal", "Step"]

KIND = "evaluation"
SCHEMA_VERSION = 3
"""Version of the lines' layout; raised when a field changes its meaning or is removed. Version 1 lacks the samples with
NaN outputs, version 2 the hashes of the files that a run reads; steps of both cannot be used."""

Facts: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns hashes of the inputs that a run has read so far, by name."""

_LISTED, _HASH, _DIGITS = 4, 64, 16
"""Largest number of listed differences, characters of a hash, and of its shown prefix."""

_OTHER, _AGAIN = "use another folder, or delete this file", "delete the file and start again"
"""Ends of error messages."""

FILE_NAME = re.compile(r"journal(?:-\d+of(\d+))?\.jsonl")
_OWN = re.compile(r"journal(?:-\d+of\d+)?\.(?:jsonl|new)")
"""Names of the files of journals."""


def refuse_own(folder: Path, outputs: Mapping[str, Path | None]) -> None:
    """Raise ConfigError if an output (``outputs``: files by flag) has the name of a journal in its folder."""
    for flag, path in outputs.items():
        if path is None or not _OWN.fullmatch(path.name.lower()):
            continue
        if os.path.realpath(path.parent) == os.path.realpath(folder):
            raise ConfigError(f"{flag} {path}: the journal of --resume {folder} has this name; name another file")


class Journal:
    """The finished steps of one run; opened by :meth:`open`, a context manager.

    Not thread-safe. No other process can open it at the same time.

    Attributes:
        path: the file. done: number of finished steps. hints: of the diagnostics, if an earlier run reached its end.
        facts: hashes of inputs of the finished steps, by name, that were read after the identity was computed.
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
        """Open the journal in a folder, or create one, with the folder.

        Args:
            folder: of journals.
            identity: plain values that must be equal for a run to be resumed: model, data set, batch size ... ``rank``
                and ``size`` (default: 0 and 1) also select the file.
            sync_every: seconds until a finished step is on the disk (fsync); 0: immediately.
            facts: returns hashes of inputs that are read during the run; new ones are stored with each step.

        Raises ConfigError: the file is the journal of another run (the message lists the differences), is in use by
        another process, is not a journal, or cannot be written.
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
                        f"{path} line {found.done + 2} is damaged; it and the {dropped - 1} lines after it are "
                        "dropped, and their steps are run again",
                        stacklevel=2,
                    )
            except BaseException:
                release(handle)
                raise
        return cls(path, handle, found, sync_every, facts)

    def replayed(self) -> Iterator[Step]:
        """Yield the finished steps in order, read one by one.

        Raises ConfigError if the file cannot be read, or has been changed since it was opened.
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
            raise ConfigError(f"{self.path} line {count + 2} was changed during the run; {_AGAIN}")

    def wrong(self, step: int, why: str) -> ConfigError:
        """Return the error for a finished step (counted from 0) that cannot be of this run."""
        return ConfigError(f"journal {self.path} line {step + 2} is not a step of this run: {why}; {_AGAIN}")

    def check_facts(self, now: Mapping[str, str]) -> dict[str, str]:
        """Return the inputs that are new; raise ConfigError, with a list, if others differ from the finished steps'."""
        differ = [name for name, value in now.items() if self.facts.get(name, value) != value]
        if differ:
            raise _other_run(self.path, [_difference(name, self.facts[name], now[name]) for name in differ[:_LISTED]])
        return {name: value for name, value in now.items() if name not in self.facts}

    def append(self, step: Step) -> None:
        """Append a step; it is in the file when this returns, and on the disk within ``sync_every`` seconds.

        Raises InputError: the record does not consist of plain arrays, or does not fit the good samples; ConfigError:
        the file cannot be written, as on a full disk (earlier steps stay valid), or an input has changed since earlier
        steps.
        """
        new = self.check_facts(self._facts())
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
        """Store the hints of a run that reached its end; a run that takes all steps from here cannot compute them.

        Raises ConfigError if the file cannot be written.
        """
        self.hints = list(hints)
        if not hints:
            return
        line = _line({"hints": self.hints})
        with _writable(self.path, self.done):
            self._write(line)
            self._end += len(line)

    def close(self) -> None:
        """Sync the file and release its lock; raise ConfigError if that fails. A second call has no effect."""
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

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        try:
            _write_at(self._handle, line, self._end)
        except OSError:
            with suppress(OSError):  # an incomplete line is dropped when the journal is opened again
                os.ftruncate(self._handle, self._end)
            raise

    def _keep_synced(self) -> None:
        """Sync in the background: the run does not wait for the disk."""
        while not self._stop.wait(self._sync_every):
            self._sync()

    def _sync(self) -> None:
        end = self._end
        if end == self._synced:
            return
        try:
            os.fsync(self._handle)
            self._synced = end
        except OSError as error:  # raised by the next append, or by close()
            self._failed = error


@contextmanager
def _writable(path: Path, done: int | None = None) -> Iterator[None]:
    """Turn an OSError on the file into a ConfigError of one line."""
    try:
        yield
    except OSError as error:
        resume = "" if done is None else f" and run the same command again: it resumes after the {done} stored steps"
        fix = f"check space and permissions of its folder{resume}"
        raise ConfigError(f"journal {path} cannot be written: {error.strerror}; {fix}") from error


def _refuse_other_sizes(folder: Path, size: int) -> None:
    """Raise ConfigError if the folder has journals of another number of processes."""
    for other in sorted(folder.glob("journal*.jsonl")):
        found = FILE_NAME.fullmatch(other.name)
        theirs = int(found[1] or 1) if found else size
        if theirs != size:
            fix = "use another folder, or delete the journals in this one"
            raise ConfigError(f"journal {other} was made by another run: size is {theirs} there and {size} here; {fix}")


def _open_or_create(path: Path, identity: Mapping[str, Any]) -> int:
    """Return the locked journal; a new one appears atomically with its first line."""
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
            _write_at(handle, header, 0)
            os.fsync(handle)
            new.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            release(handle)
            raise
        return handle


def _write_at(handle: int, content: bytes, place: int) -> None:
    while content:
        written = os.pwrite(handle, content, place)
        content, place = content[written:], place + written


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Found(NamedTuple):
    """The number of steps in a journal, the byte at which the last one ends, its hints and facts."""

    done: int
    end: int
    hints: Sequence[str]
    facts: Mapping[str, str]


def _check(path: Path, identity: Mapping[str, Any]) -> _Found:
    """Read the journal of this run; raise ConfigError if it is not a journal, or is of another run."""
    lines = _lines(path)
    end, header = next(lines, (0, {}))
    if header.get("journal") != KIND:
        raise ConfigError(f"{path} does not begin with the line of a journal; {_OTHER}")
    if (version := header.get("schema_version")) != SCHEMA_VERSION:
        raise ConfigError(f"journal {path} has schema version {version}, this zoo writes {SCHEMA_VERSION}; {_OTHER}")
    theirs, ours = header.get("identity"), json.loads(_json(dict(identity)))
    if not isinstance(theirs, dict):
        raise ConfigError(f"journal {path} has no identity of its run; {_OTHER}")
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
        more = content.get("facts", {})
        if not isinstance(more, dict) or not all(isinstance(value, str) for value in more.values()):
            raise ConfigError(
                f"journal {path} line {done + 1} is not a step of this run: facts must be strings; {_AGAIN}"
            )
        facts |= more
    return _Found(done, end, hints, facts)


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the differences of two identities; of mappings, such as files by name, the differences by key."""
    found = []
    for key in {**ours, **theirs}:
        one, other = theirs.get(key), ours.get(key)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            names = [name for name in {**other, **one} if one.get(name) != other.get(name)]
            found += [_difference(name, one.get(name), other.get(name)) for name in names[:_LISTED]]
            if len(names) > _LISTED:
                found.append(f"{len(names) - _LISTED} more files differ")
        else:
            found.append(f"{key} is {one!r} there and {other!r} here")
    return found


def _difference(name: str, there: str | None, here: str | None) -> str:
    texts = ("missing" if text is None else text if len(text) != _HASH else text[:_DIGITS] for text in (there, here))
    one, other = (repr(shortened(text)) for text in texts)
    return f"{name} is {one} there and {other} here"


def _other_run(path: Path, differences: Sequence[str]) -> ConfigError:
    return ConfigError(f"journal {path} was made by another run: {'; '.join(differences)}; {_OTHER}")


def _drop_from(path: Path, handle: int, end: int) -> int:
    """Truncate the file and return the number of removed lines, including an incomplete one."""
    with path.open("rb") as file:
        file.seek(end)
        dropped = sum(1 for _ in file)
    if dropped:
        os.ftruncate(handle, end)
    return dropped


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the end (in bytes) and the content of every line, up to the first incomplete or damaged one."""
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
                raise ConfigError(f"{path} line {number} is not JSON ({reason_of(error)}); {_OTHER}") from error
            if not isinstance(content, dict):
                raise ConfigError(f"{path} line {number} is not a JSON object; {_OTHER}")
            yield end, content


def _line(content: dict[str, Any]) -> bytes:
    text = _json(content).encode("ascii")  # other characters are escaped, also file names that are not valid UTF-8
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), default=str)
