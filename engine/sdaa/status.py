"""Status of the simulated devices for ``teco-smi``: one small JSON file per process.

The files are in a folder of the user and are replaced atomically, so a reader sees a complete file or none.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import re
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.json_types import Problems, items, number, parsed, text, whole
from tecoinfer_modelzoo.text import shortened

DIRECTORY_VARIABLE = "TECO_SMI_DIR"  # environment variable for another folder of the files
CARDS_VARIABLE = "TECO_SIM_CARDS"  # environment variable with the number of simulated cards of this host (default 1)
HEALTHS = ("OK", "HEARTBEAT_ERROR", "DEVICE_LOST")  # states of a device, best first
SCHEMA_VERSION = 1
STALE_SECONDS = 2.0  # age from which a process without a running call counts as idle
MAX_CARDS = 64
MAX_DEVICES = 1024
_INTERVAL = 0.2
_FILE = re.compile(r"([1-9][0-9]*)-[0-9]+\.(json|tmp)")
_MAX_BYTES = 1 << 20

_log = logging.getLogger(__name__)
_numbers = itertools.count()
_warned = False


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Use of one device by one process."""

    index: int  # of the SPA over all cards of the host: card * SPA per card + SPA
    health: str  # one of :data:`HEALTHS`
    memory_used: int  # bytes
    utilisation: float  # fraction of the simulated time in which the SPA computes, 0 to 1
    host_busy: float = 0.0  # fraction of wall time in which the process computes for the device, 0 to 1


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """Last status of one publisher; its devices are idle if it is older than :data:`STALE_SECONDS`.

    During a running call the devices stay busy for any time.
    """

    pid: int  # of the process; two publishers of one process give two objects
    name: str  # of the process, as ``ps`` shows it
    devices: tuple[DeviceStatus, ...]  # those it uses
    updated: float  # seconds since the epoch


def card_count() -> int:
    """Return this host's card count, ``TECO_SIM_CARDS`` (1 to 64, default 1); raise ConfigError if invalid."""
    text = os.environ.get(CARDS_VARIABLE, "1")
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MAX_CARDS:
        raise ConfigError(
            f"environment variable {CARDS_VARIABLE}={text!r} must be a whole number from 1 to {MAX_CARDS}"
        )
    return int(text)


def directory() -> Path:
    """Return the folder of the files: ``TECO_SMI_DIR``, else one of the user."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen).absolute() if chosen else _own_folder() / "devices"


def _own_folder() -> Path:
    # Cron jobs and `docker exec` may lack XDG_RUNTIME_DIR: writer and reader must still use the same folder.
    uid = os.getuid()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}")
    if os.access(runtime, os.W_OK | os.X_OK) and runtime.is_dir() and runtime.stat().st_uid == uid:
        return runtime / f"tecoinfer-{uid}"
    import tempfile

    return Path(tempfile.gettempdir(), f"tecoinfer-{uid}")


def _check_owner(folder: Path) -> None:
    """Raise PermissionError if other users can write to a folder (any user can write to the temporary folder)."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a folder that only this user can write; set {DIRECTORY_VARIABLE}")


def _prepare(folder: Path) -> None:
    if not os.environ.get(DIRECTORY_VARIABLE):
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        _check_owner(folder.parent)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


# ---------------------------------------------------------------------------------------------------------- publishing


class Publisher:
    """Writes the status of this process's devices, at most 5 times a second.

    Publishing never fails a call: if the folder cannot be written, one warning is logged per process. The file is
    removed by :meth:`close`, with the publisher, or at exit; a reader removes the files of killed processes.

    ``host_busy`` is the fraction of time inside :meth:`computing` since the last write.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._number = next(_numbers)
        self._lock = threading.Lock()
        self._next = -math.inf
        self._closed = False
        self._active, self._worked, self._since = 0, 0.0, time.monotonic()
        self._slow = True  # whether calls take over 0.2 seconds; unknown for the first one
        self._path: Path | None = None
        self._identity: dict[str, Any] = {}

    def publish(self, devices: Sequence[DeviceStatus], *, force: bool = False) -> None:
        """Write the status of every device used; ``force``: even less than 0.2 seconds after the last write."""
        now = time.monotonic()
        if now < self._next and not force:
            return
        if self._closed:
            return
        if os.getpid() != self._pid:
            self._start()  # in a forked child the file, and perhaps a held lock, are the parent's
        self._next = now + _INTERVAL
        with self._lock:
            try:
                self._write(devices)
            except OSError as error:
                _warn(error)

    def is_due(self) -> bool:
        """Return whether the last write was 0.2 seconds ago or more."""
        return time.monotonic() >= self._next

    @contextlib.contextmanager
    def computing(self, devices: Callable[[], Sequence[DeviceStatus]]) -> Iterator[None]:
        """Count the time in the ``with`` block as host work; if calls take over 0.2 seconds, publish a running call.

        The next status is then published at once. ``devices`` returns the status at the start, and if the call fails.
        """
        start, announced = time.monotonic(), self._slow
        self._count(1, 0.0)
        if announced:
            self.publish(devices(), force=True)
        try:
            yield
        except BaseException:
            self._ended(start)
            self.publish(devices(), force=True)
            raise
        self._ended(start)
        if announced:
            self._next = -math.inf

    def _ended(self, start: float) -> None:
        seconds = time.monotonic() - start
        self._slow = seconds > _INTERVAL
        self._count(-1, seconds)

    def _count(self, calls: int, seconds: float) -> None:
        with self._lock:
            self._active += calls
            self._worked += seconds

    def _write(self, devices: Sequence[DeviceStatus]) -> None:
        if self._closed:  # by another thread, while this one waited
            return
        path = self._path or self._open()
        now = time.monotonic()
        busy = 1.0 if self._active else min(1.0, self._worked / max(now - self._since, 1e-9))
        self._worked, self._since = 0.0, now
        content = _content({**self._identity, "computing": self._active > 0}, devices, busy)
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(content, encoding="utf-8")
        except FileNotFoundError:  # the folder went away, as /run/user/<uid> does when its user logs out
            _prepare(path.parent)
            temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, path)

    def _open(self) -> Path:
        running = _running(self._pid)
        self._identity = {
            "schema_version": SCHEMA_VERSION,
            "pid": self._pid,
            "start_time": running[1] if running else None,
            "name": _process_name(),
        }
        path = directory() / f"{self._pid}-{self._number}.json"
        _prepare(path.parent)
        self._path = path
        weakref.finalize(self, _remove, path, self._pid)
        return path

    def close(self) -> None:
        """Remove the file; publishing afterwards does nothing."""
        self._closed = True
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._path is not None:
                _remove(self._path, self._pid)


def _content(identity: dict[str, Any], devices: Sequence[DeviceStatus], busy: float) -> str:
    import json

    entries = [
        {
            "index": int(device.index),  # json does not support NumPy scalars
            "health": device.health,
            "memory_used": int(device.memory_used),
            "utilisation": float(device.utilisation),
            "host_busy": max(busy if device.health == HEALTHS[0] else 0.0, float(device.host_busy)),
        }
        for device in devices
    ]
    return json.dumps({**identity, "devices": entries, "updated": time.time()})


def _warn(error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        _log.warning("teco-smi will not show this process: %s", shortened(str(error)))


def _remove(path: Path, pid: int) -> None:
    if os.getpid() != pid:  # in a forked child, whose parent owns the file
        return
    for file in (path, path.with_suffix(".tmp")):
        with contextlib.suppress(OSError):
            file.unlink()


def _process_name() -> str:
    try:
        return Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # no /proc on this system
        return os.path.basename(sys.executable)


# ------------------------------------------------------------------------------------------------------------- reading


def read_all() -> list[ProcessStatus]:
    """Return the last status of living processes by id, deleting others; raise ConfigError for a bad folder."""
    try:
        folder = directory()
        if not os.environ.get(DIRECTORY_VARIABLE):
            _check_owner(folder.parent)
        names = sorted(os.listdir(folder))
    except FileNotFoundError:  # nothing has ever published
        return []
    except OSError as error:
        raise ConfigError(f"device status cannot be read: {error}") from error
    found = [_read(folder / name, int(match[1])) for name in names if (match := _FILE.fullmatch(name))]
    return sorted((status for status in found if status), key=lambda status: status.pid)


def _read(path: Path, pid: int) -> ProcessStatus | None:
    """Return the status in one file; ``None`` if its process is dead (the file is removed) or the file is invalid."""
    try:
        start, status = _parse(read_regular(path, _MAX_BYTES))
    except (OSError, *Problems) as error:
        _log.debug("%s ignored: %s", path, error)
        start, status = None, None
    if not _alive(pid, start):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    return status if status and status.pid == pid and path.suffix == ".json" else None


def _parse(content: bytes) -> tuple[int | None, ProcessStatus]:
    """Return start time and status; raise ValueError, KeyError, TypeError and others if the file is invalid."""
    data = parsed(content)
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version {data['schema_version']!r}")
    devices = tuple(_device(entry) for entry in items(data["devices"]))
    updated = number(data["updated"])
    if not abs(time.time() - updated) <= STALE_SECONDS and data.get("computing") is not True:
        devices = tuple(replace(device, utilisation=0.0, host_busy=0.0) for device in devices)
    start = data["start_time"]
    status = ProcessStatus(whole(data["pid"]), text(data["name"]).strip(), devices, updated)
    return None if start is None else whole(start), status


def _device(entry: dict[str, Any]) -> DeviceStatus:
    index, memory = whole(entry["index"], 0, MAX_DEVICES - 1), whole(entry["memory_used"], 0, 2**60)
    shares = [number(share, -1e9, 1e9) for share in (entry["utilisation"], entry.get("host_busy", 0.0))]
    if entry["health"] not in HEALTHS:
        raise ValueError("invalid health of a device")
    return DeviceStatus(index, entry["health"], memory, *(min(1.0, max(0.0, share)) for share in shares))


def _alive(pid: int, start: int | None) -> bool:
    """Return whether a process lives and is the one that started at ``start`` (``None``: any)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it belongs to another user
        return True
    running = _running(pid)
    if running is None:
        return True
    state, started = running
    return state not in "ZX" and start in (None, started)


def _running(pid: int) -> tuple[str, int] | None:
    """Return state and start time of a process (fields 3 and 22 of ``/proc/<pid>/stat``, proc(5))."""
    try:
        # The name in field 2 may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:  # no /proc on this system
        return None
    return fields[0].decode(), int(fields[19])
