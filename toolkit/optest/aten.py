"""Test case of one call of an ATen operator of a training dump: arguments, recorded results and a pytest file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template

import numpy as np

from engine import DataError
from engine.training import OpCall, Recorded, read_call
from toolkit.optest.outcome import DATA, TOLERANCES

SUFFIXES = (".h5", ".hdf5")  # suffixes of dumps
SCHEMA_VERSION = 1  # version of CALL; raised when a field is removed or changes its meaning
CALL = "call.json"
_CPU_STATE = 5056  # bytes of the state of the CPU's generator, which the card uses with ``TORCH_SDAA_RANDOM=cpu``
_TEST = Path(__file__).resolve().parent / "test_aten.py.tmpl"


@dataclass(frozen=True, slots=True)
class AtenCase:
    """A case on disk: folder, test file, operator and devices."""

    folder: Path
    test: Path
    op: str
    devices: tuple[str, ...]


def _check(call: OpCall, inputs: int, file: Path) -> None:
    """Raise DataError for a call that cannot be rerun from the file."""
    words = json.dumps([call.args, call.kwargs])
    if '"opaque"' in words:
        raise DataError(f"{call.where} has an argument that is not in the dump and cannot be rerun; choose another")
    if call.failed:
        raise DataError(f"{call.where} failed ({call.failed}), and {file} has no results of it; choose another")
    if not inputs and '"tensor"' in words:
        raise DataError(f"{call.where} was dumped without its inputs; dump again with dump_mode all")


def _devices(held: Recorded) -> tuple[tuple[str, ...], str]:
    """Return the devices of a call, and the kind of random generator on the card, which the state must fit."""
    on_cpu = held.call.device.startswith("cpu")
    if held.state is None or on_cpu or held.state.size == _CPU_STATE:
        return ("cpu", "sdaa"), "cpu" if held.state is not None else "device"
    return ("sdaa",), "device"


def write_aten_case(file: Path, name: str, out: Path | None = None) -> AtenCase:
    """Write ``call.json``, ``data.npz`` and a pytest file that runs a dump's call on the device.

    Args:
        name: of the call, as for :meth:`engine.TrainingDump.call`. out: folder; by default ``optest_`` and the name.

    Raises:
        ConfigError: h5py is not installed. DataError: the dump is invalid or incomplete, the call does not exist or
            cannot be rerun, or the folder cannot be written.
    """
    held = read_call(file, name)
    call = held.call
    _check(call, len(held.inputs), file)
    devices, random = _devices(held)
    plain = re.sub(r"[^A-Za-z0-9]+", "_", call.where).strip("_")
    folder = out or Path(f"optest_{plain}")
    test = folder / f"test_{plain.lower()}.py"
    arrays = {f"in{k}": array for k, array in enumerate(held.inputs)}
    arrays |= {f"out{k}": array for k, array in enumerate(held.outputs)}
    arrays |= {} if held.state is None else {"state": held.state}
    words = {"name": call.where, "devices": repr(devices), "random": random, "tolerances": repr(TOLERANCES)}
    words |= {"dump": re.sub(r'[\\"\r\n\x00-\x1f]', "_", file.name)}
    text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(call)}, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = next((each.name for each in sorted(folder.glob("test_*.py")) if each.name != test.name), None)
        if other is not None:
            raise DataError(f"{folder} contains another case ({other}); choose another --out")
        (folder / CALL).write_text(text, encoding="utf-8")
        np.savez(folder / DATA, **arrays)  # type: ignore[arg-type]
        test.write_text(Template(_TEST.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}; choose another --out") from error
    return AtenCase(folder, test, call.op, devices)


def run_aten_case(case: AtenCase) -> tuple[bool, str]:
    """Run the test of a case in a separate process; return whether it passes, and its first error line."""
    flags = ["-q", "-p", "no:cacheprovider", "--rootdir", str(case.folder)]
    command = [sys.executable, "-m", "pytest", *flags, str(case.test)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E  ")] or done.stdout.splitlines()[-1:]
    return done.returncode == 0, errors[0].removeprefix("E").strip() if errors else done.stderr.strip()[-300:]
