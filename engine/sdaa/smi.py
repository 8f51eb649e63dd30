"""``teco-smi``: the state of this host's simulated cards, in the format of the vendor's command.

If the vendor's ``teco-smi`` is on the ``PATH``, it is run instead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.base import engine_nums
from engine.host.installed import zoo_version
from engine.host.version_flag import add_version
from engine.sdaa.card import load_card
from engine.sdaa.status import HEALTHS, DeviceStatus, ProcessStatus, card_count, read_all
from tecoinfer_modelzoo.errors import TecoInferError
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag
from tecoinfer_modelzoo.interrupts import ended, raise_on_first_interrupt
from tecoinfer_modelzoo.streams import Output, Standing, fill_closed

SCHEMA_VERSION = 1
COMMAND = "teco-smi"
OURS = (b"tecoinfer_modelzoo.commands", b"engine.sdaa.smi")  # texts of our start scripts, now and in earlier versions

HANDED_OVER = "_TECO_SMI_HANDED_OVER"
"""Environment variable set for a command started instead of ours, so that two commands never start each other."""

_WIDTH = 77
_COLUMNS = (31, 22, 22)
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Device:
    """One row of the table: a SPA; fractions are 0 to 1, and ``None`` if it is lost, as in the specification."""

    index: int  # over all cards
    bus_id: str  # of its card
    health: str  # the worst any process reports
    memory_used: int  # bytes, of all processes
    utilisation: float | None  # of the simulated time in which it computes
    host_busy: float | None  # of wall time in which the host computes for the device


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the processes table: a process on a SPA, its memory in bytes."""

    index: int
    pid: int
    name: str
    memory_used: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The devices and processes at one moment; ``memory_total`` is the bytes of one SPA."""

    card: str
    memory_total: int
    devices: tuple[Device, ...]
    processes: tuple[Process, ...]


def snapshot() -> Snapshot:
    """Return the state of this host's cards; raise ConfigError for an invalid description, variable or folder."""
    card, per_card, running = load_card(), engine_nums(), read_all()
    by_device: dict[int, list[DeviceStatus]] = defaultdict(list)
    for process in running:
        for status in process.devices:
            by_device[status.index].append(status)
    # A process may use more devices than configured here: show them as well.
    count = max(card_count() * per_card, *(index + 1 for index in by_device), 0)
    devices = tuple(_device(index, index // per_card, by_device[index]) for index in range(count))
    return Snapshot(card.name, card.memory_bytes, devices, _processes(running))


def _device(index: int, card: int, statuses: Sequence[DeviceStatus]) -> Device:
    health = max((status.health for status in statuses), key=HEALTHS.index, default=HEALTHS[0])
    lost = health == "DEVICE_LOST"
    return Device(
        index=index,
        bus_id=f"00000000:{card + 1:02X}:00.0",
        health=health,
        memory_used=sum(status.memory_used for status in statuses),
        utilisation=None if lost else min(1.0, sum(status.utilisation for status in statuses)),
        host_busy=None if lost else min(1.0, sum(status.host_busy for status in statuses)),
    )


def _processes(running: Sequence[ProcessStatus]) -> tuple[Process, ...]:
    """Return one row per device and process that has memory there or computes."""
    names = {process.pid: process.name for process in running}
    memory: dict[tuple[int, int], int] = defaultdict(int)
    for process in running:
        for status in process.devices:
            if status.memory_used or status.utilisation or status.host_busy:
                memory[status.index, process.pid] += status.memory_used
    return tuple(Process(index, pid, names[pid], used) for (index, pid), used in sorted(memory.items()))


# --------------------------------------------------------------------------------------------------------------- shown


def table(shown: Snapshot) -> str:
    """Return the table, 79 characters wide, ending in a newline."""
    rule, columns = "-" * _WIDTH, ["-" * width for width in _COLUMNS]
    versions = f"  SDAADriver: simulated      SDAARuntime: simulated      Simulator: {zoo_version()}"
    lines = [
        time.ctime(),
        f"+{rule}+",
        f"|{_left(versions, _WIDTH)}|",
        f"|{'+'.join(columns)}|",
        _row(" Index  Name", " Bus-Id", " Health     Host busy"),
        _row("        Temp          Pwr Usage", f"{'Memory-Usage':>22}", f"{'SPE-Util (simulated)':>21}"),
        f"|{'=' * _WIDTH}|",
    ]
    for device in shown.devices:
        lines += [*_device_lines(device, shown), f"|{'+'.join(columns)}|"]
    lines[-1] = f"+{'+'.join(columns)}+"
    return "\n".join([*lines, f"+{rule}+", *_process_lines(shown), f"+{rule}+", ""])


def _device_lines(device: Device, shown: Snapshot) -> list[str]:
    memory = f"{_mb(device.memory_used)}MB / {_mb(shown.memory_total)}MB"
    return [
        _row(
            f"{device.index:>4}    {shown.card}",
            f" {device.bus_id}",
            f" {device.health:<15}{_share(device.host_busy):>5}",
        ),
        _row("        N/A                N/A", f"{memory:>21}", f"{_share(device.utilisation):>21}"),
    ]


def _share(share: float | None) -> str:
    """Return a fraction in percent; values above 0 are at least 1%."""
    if share is None:
        return "N/A"
    return f"{max(1, round(share * 100)) if share > 0 else 0}%"


def _process_lines(shown: Snapshot) -> list[str]:
    head = [" Processes:", "  Tcaicard     PID      Process name                            Memory Usage"]
    rows = [f"{p.index:>6}{p.pid:>12}      {_left(p.name, 38)}{_mb(p.memory_used):>11} MB" for p in shown.processes]
    body = rows or ["  No running processes found"]
    return (
        [f"|{_left(line, _WIDTH)}|" for line in head]
        + [f"|{'=' * _WIDTH}|"]
        + [f"|{_left(line, _WIDTH)}|" for line in body]
    )


def _row(*cells: str) -> str:
    return f"|{'|'.join(_left(cell, width) for cell, width in zip(cells, _COLUMNS, strict=True))}|"


def _left(text: str, width: int) -> str:
    """Truncate or pad to a width; characters that are not one column wide become a question mark."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    return f"{plain[:width]:<{width}}"


def _mb(used: int) -> int:
    return -(-used // _MB)


def as_json(shown: Snapshot) -> dict[str, Any]:
    """Return the table's contents, memory in bytes, ``None`` for what is not simulated.

    ``spe_utilisation`` is a fraction of the simulated time, ``host_busy`` one of wall time, both 0 to 1.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "simulated": True,
        "simulator_version": zoo_version(),
        "timestamp": time.time(),
        "devices": [
            {
                "index": device.index,
                "name": shown.card,
                "bus_id": device.bus_id,
                "health": device.health,
                "temperature_c": None,
                "power_w": None,
                "memory_used_bytes": device.memory_used,
                "memory_total_bytes": shown.memory_total,
                "spe_utilisation": device.utilisation,
                "host_busy": device.host_busy,
            }
            for device in shown.devices
        ],
        "processes": [
            {"index": p.index, "pid": p.pid, "name": p.name, "memory_used_bytes": p.memory_used}
            for p in shown.processes
        ],
    }


# -------------------------------------------------------------------------------------------------------- command line


def _vendor_command() -> str | None:
    """Return the first ``teco-smi`` on the ``PATH`` that is not this one in any environment."""
    if os.environ.get(HANDED_OVER):
        return None
    own = os.path.realpath(sys.argv[0])
    for folder in os.get_exec_path():
        found = shutil.which(COMMAND, path=folder)
        if found is not None and os.path.realpath(found) != own and not _is_ours(found):
            return found
    return None


def _is_ours(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            start = file.read(8192)
            return any(own in start for own in OURS)
    except OSError:  # our start scripts are readable
        return False


def _hand_over(command: str, arguments: Sequence[str]) -> None:
    """Replace this process by the vendor's command; return only if it cannot be started."""
    _complain(f"handing over to {command} (--simulated shows the simulated cards)")
    try:
        os.execve(command, [command, *arguments], {**os.environ, HANDED_OVER: "1"})  # noqa: S606
    except OSError as error:
        _complain(f"{command} cannot be started ({error.strerror}); showing the simulated cards")


def _complain(text: str) -> None:
    sys.stderr.write(f"{COMMAND}: {text}\n")
    sys.stderr.flush()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 86400")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description="Show what the simulated T1 cards of this host are doing."
    )
    add_version(parser)
    add_json_flag(parser, "the state (with --watch: one object per line, to standard output only)")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=1.0,
        metavar="SECONDS",
        help="repeat until Ctrl-C (default: every second)",
    )
    parser.add_argument("--simulated", action="store_true", help="do not hand over to the vendor's own teco-smi")
    return parser


def _text(*, as_object: bool, one_line: bool) -> str:
    shown = snapshot()
    if as_object:
        return json.dumps(as_json(shown), indent=None if one_line else 2) + "\n"
    return table(shown)


def _watch(seconds: float, output: Output, *, as_object: bool) -> None:
    redraw = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not as_object
    try:
        raise_on_first_interrupt(lambda: "")
        while not (output.left or output.lost):
            text = _text(as_object=as_object, one_line=True)
            if redraw:  # overwriting from the top left corner flickers less than clearing
                text = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[J"
            sys.stdout.write(text)
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return
    finally:
        ended()


def _write(file: Path, text: str) -> None:
    try:
        write_file(file, text.encode())
    except OSError as error:
        raise TecoInferError(f"{file} cannot be written: {error.strerror}; choose another --json") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 if shown (or interrupted while watching), 2 if something cannot be read or written."""
    fill_closed()
    with Standing() as output:
        try:
            code = _main(argv, output)
        except SystemExit as leaving:  # --help, or invalid arguments
            if leaving.code or output.exit_code(0, str) == 0:
                raise
            code = 0
        return output.exit_code(code, lambda text: _complain(text.removeprefix("error: ")))


def _main(argv: Sequence[str] | None, output: Output) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    vendor = None if "--simulated" in arguments else _vendor_command()
    if vendor is not None:
        _hand_over(vendor, arguments)
    parser = _parser()
    options = parser.parse_args(arguments)
    file = options.json if options.json != STDOUT else None
    if options.watch is not None and file is not None:
        parser.error(f"--watch and --json {file} exclude each other; redirect standard output to the file instead")
    try:
        if options.watch is not None:
            _watch(options.watch, output, as_object=options.json is not None)
            return 0
        sys.stdout.write(_text(as_object=options.json == STDOUT, one_line=False))
        if file is not None:
            _write(file, _text(as_object=True, one_line=False))
    except TecoInferError as error:
        _complain(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
