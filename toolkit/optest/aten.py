"""A test case of one call of an ATen operator, out of a training's dump: arguments, recorded results, a pytest file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, did_you_mean
from toolkit.optest.outcome import DATA, TOLERANCES

SUFFIXES = (".h5", ".hdf5")
"""Of the files that are dumps."""

CALL = "call.json"
_TEST = Path(__file__).resolve().parent / "test_aten.py.tmpl"


@dataclass(frozen=True, slots=True)
class Call:
    """One call: what the dump says of it, and the values that went in and came out."""

    name: str
    about: dict[str, Any]
    inputs: list[Array]
    outputs: list[Array]


@dataclass(frozen=True, slots=True)
class AtenCase:
    """A case on disk: its folder, its test, the operator."""

    folder: Path
    test: Path
    op: str


def read_op(file: Path, name: str) -> Call:
    """Return a call of a dump: ``aten.addmm.default/0``; without a number the operator's first.

    Raises:
        ConfigError: h5py is not installed. DataError: the file is no dump, is cut short, or has no such call.
    """
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(
            "dumps of a training need the package h5py, which is not installed; run: pip install h5py"
        ) from error
    op, _, number = name.partition("/")
    try:
        with h5py.File(file, "r") as dump:
            if op not in dump:
                raise DataError(
                    f"{file} has no call of {op};{did_you_mean(op, dump) or ' teco replay-op lists the calls'}"
                )
            where = f"{op}/{number or '0'}"
            if where not in dump or "call" not in dump[where]:
                raise DataError(f"{file} has no call {where}: it has {len(dump[op])} of {op}, counted from 0")
            group = dump[where]
            about = json.loads(bytes(group["call"][()]))
            sides = [
                [np.asarray(group[f"{side}/{k}"][()]) for k in range(len(about[f"{side}s"]))]
                for side in ("input", "output")
            ]
    except FileNotFoundError:
        raise DataError(f"{file} does not exist") from None
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        text = str(error).splitlines()[0]
        raise DataError(
            f"{file} cannot be read as a dump of a training ({text}); dump again, and let it end"
        ) from error
    return Call(where, about, *sides)


def write_aten_case(file: Path, name: str, out: Path | None = None) -> AtenCase:
    """Write ``call.json``, ``data.npz`` and a pytest file that runs the call on the device.

    Args:
        file: a dump. name: of the call (:func:`read_op`). out: folder to write; by itself ``optest_`` and the name.

    Raises:
        DataError: as of :func:`read_op`; the call cannot be repeated, or the folder cannot be written.
    """
    call = read_op(file, name)
    if '"opaque"' in json.dumps(call.about.get("args", [])) + json.dumps(call.about.get("kwargs", {})):
        raise DataError(
            f"{call.name} takes an argument that the dump does not keep, and cannot be repeated; take another"
        )
    if call.about.get("draws"):
        raise DataError(
            f"{call.name} draws random numbers; repeat it with teco replay-op, which has the generator's state"
        )
    plain = re.sub(r"[^A-Za-z0-9]+", "_", call.name).strip("_")
    folder = out or Path(f"optest_{plain}")
    test = folder / f"test_{plain.lower()}.py"
    arrays = {f"in{k}": array for k, array in enumerate(call.inputs)}
    arrays |= {f"out{k}": array for k, array in enumerate(call.outputs)}
    words = {"name": call.name, "dump": re.sub(r'[\\"\r\n\x00-\x1f]', "_", file.name), "tolerances": repr(TOLERANCES)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = next((each.name for each in sorted(folder.glob("test_*.py")) if each.name != test.name), None)
        if other is not None:
            raise DataError(f"{folder} holds another case ({other}); choose another --out")
        (folder / CALL).write_text(json.dumps(call.about, indent=1), encoding="utf-8")
        np.savez(folder / DATA, **arrays)  # type: ignore[arg-type]
        test.write_text(Template(_TEST.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}; choose another --out") from error
    return AtenCase(folder, test, str(call.about["op"]))


def run_aten_case(case: AtenCase) -> tuple[bool, str]:
    """Run a case's test in a process of its own; return whether it passes, and its last lines where it does not."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(case.folder),
        str(case.test),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.startswith("E  ")] or done.stdout.splitlines()[-1:]
    return done.returncode == 0, said[0].removeprefix("E").strip() if said else done.stderr.strip()[-300:]
