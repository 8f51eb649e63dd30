"""Runs PyTorch's own device-generic test files on the device.

``python -m tests.torch_sdaa.operators.device_generic FOLDER``: FOLDER holds test files of PyTorch (``test_torch.py``,
``test_autograd.py``, ``test_nn.py``, ``test_optim.py``, and openreg's ``tests/test_*.py``) that you fetched at the tag
of the installed torch; they are not part of this project.
Tests that PyTorch makes for each device (``instantiate_device_type_tests``) are made for ``sdaa`` only;
``--all-classes`` also runs classes that are for no device, as openreg's are. Each file runs in a process of its own,
again from the next test where one ends it. ``--control`` runs each test that failed on the CPU too, and tells those
that fail there as well apart: files of another version than the installed torch have such tests.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.torch_sdaa.hard.check import environment

ROOT = Path(__file__).resolve().parents[3]
SCHEMA_VERSION = 1
ENDED = "ended the process"
DEVICE = "sdaa"
UNUSABLE = "the file could not be run"
ON_CPU_TOO = "failed on the CPU too"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the files, print counts and reasons; return 1 if a test failed, 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_sdaa.operators.device_generic", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the test files are")
    parser.add_argument("--only", default="", metavar="PART", help="files whose name has this part")
    parser.add_argument("--all-classes", action="store_true", help="also classes that are for no device")
    parser.add_argument("--control", action="store_true", help="tell apart what fails on the CPU too")
    parser.add_argument("--device", default=DEVICE, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=int, default=3600, help="how long a file may take")
    parser.add_argument("--json", type=Path, metavar="F", help="write all outcomes to this file")
    parser.add_argument("--journal", type=Path, help=argparse.SUPPRESS)  # one file, in this process
    args = parser.parse_args(argv)
    if args.journal:
        run_here(args.folder, args.journal, args.all_classes, args.device)
        return 0
    files = sorted(path for path in args.folder.glob("test_*.py") if args.only in path.name)
    if not files:
        print(f"{args.folder} has no test_*.py with {args.only!r} in its name; fetch PyTorch's there", file=sys.stderr)
        return 2
    found: dict[str, dict[str, list[str]]] = {}
    for path in files:
        outcomes = found[path.name] = run_file(path, args.all_classes, args.seconds, args.device)
        if args.control and any(kind == "failed" for kind, _ in outcomes.values()):
            note_control(outcomes, run_file(path, args.all_classes, args.seconds, "cpu"))
        print(f"{path.name}: {counts_text(outcomes)}")
        for (kind, reason), count in reasons(outcomes).most_common():
            print(f"  {count:5} {kind}: {reason}", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"schema_version": SCHEMA_VERSION, "files": found}, indent=1))
    return int(any(kind == "failed" for outcomes in found.values() for kind, _ in outcomes.values()))


def counts_text(outcomes: dict[str, list[str]]) -> str:
    """Return the counts of a file's outcomes as text."""
    counts = Counter(kind for kind, _ in outcomes.values())
    kinds = ("passed", "failed", "skipped", *([ON_CPU_TOO] if counts[ON_CPU_TOO] else []))
    return f"{len(outcomes)} tests, " + ", ".join(f"{counts[kind]} {kind}" for kind in kinds)


def note_control(outcomes: dict[str, list[str]], on_cpu: dict[str, list[str]]) -> None:
    """Mark the failures whose test fails on the CPU as well."""
    for name, (kind, reason) in outcomes.items():
        other = on_cpu.get(name.replace("PRIVATEUSE1", "CPU").replace(DEVICE.upper(), "CPU").replace(DEVICE, "cpu"))
        if kind == "failed" and other and other[0] == "failed" and not reason.startswith(UNUSABLE):
            outcomes[name] = [ON_CPU_TOO, reason]


def reasons(outcomes: dict[str, list[str]]) -> Counter[tuple[str, str]]:
    """Return how often each reason was given for a failure or a skip."""
    return Counter((kind, reason) for kind, reason in outcomes.values() if kind != "passed")


def run_file(path: Path, all_classes: bool, seconds: int, device: str = DEVICE) -> dict[str, list[str]]:
    """Run a file in child processes until each test has an outcome: ``{test: [kind, reason]}``."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        journal.touch()
        words = [str(path.resolve()), "--journal", str(journal), "--device", device]
        words += ["--all-classes"] if all_classes else []
        command = [sys.executable, "-m", "tests.torch_sdaa.operators.device_generic", *words]
        env = {**environment(), "PYTORCH_TESTING_DEVICE_ONLY_FOR": device, "TECO_SMI_DIR": folder}
        while True:
            before = journal.stat().st_size
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=env, timeout=seconds, capture_output=True, text=True, check=False
                )
                why = f"exit code {done.returncode}: {' '.join(done.stderr.split())[-200:]}"
                finished = done.returncode == 0
            except subprocess.TimeoutExpired:
                why, finished = f"not done after {seconds} s", False
            outcomes = read(journal)
            if finished:
                return outcomes
            running = [name for name, (kind, _) in outcomes.items() if kind == "running"]
            if not running or journal.stat().st_size == before:
                return outcomes | {path.name: ["failed", f"{UNUSABLE}: {why}"]}
            note(journal, running[0], "failed", f"{ENDED}: {why}")


def read(journal: Path) -> dict[str, list[str]]:
    """Return the last outcome of every test in a journal."""
    return {name: [kind, reason] for name, kind, reason in map(json.loads, journal.read_text().splitlines())}


def note(journal: Path, name: str, kind: str, reason: str) -> None:
    """Add a line to a journal."""
    with journal.open("a") as file:
        file.write(json.dumps([name, kind, reason]) + "\n")


class Notes(unittest.TestResult):
    """Writes every outcome as soon as it is known."""

    def __init__(self, journal: Path) -> None:
        super().__init__()
        self._journal = journal
        self._kind, self._reason = "", ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._kind, self._reason = "passed", ""
        note(self._journal, test.id(), "running", "")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        note(self._journal, test.id(), self._kind, self._reason)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._set(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._set(test, "skipped", f"PyTorch expects it to fail: {err[1]}")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._set(test, "failed", "PyTorch expects it to fail, and it does not")

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._set(test, "failed", f"{err[0].__name__}: {err[1]}")

    addFailure = addError  # noqa: N815 - unittest's name

    def addSubTest(self, test: unittest.TestCase, _subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._set(test, "failed", f"{err[0].__name__}: {err[1]}")

    def _set(self, test: unittest.TestCase, kind: str, reason: str) -> None:
        self._kind, self._reason = kind, " ".join(str(reason).split())[:200]
        if not isinstance(test, unittest.TestCase):  # a class could not be set up: no test of it starts
            note(self._journal, str(test), kind, self._reason)


def cases(suite: unittest.TestSuite, all_classes: bool, device: str = DEVICE) -> Iterator[unittest.TestCase]:
    """Yield the tests that are for the device, or all."""
    kinds = (device, "privateuse1") if device == DEVICE else (device,)
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases(part, all_classes, device)
        elif all_classes or getattr(part, "device_type", None) in kinds:
            yield part


def run_here(path: Path, journal: Path, all_classes: bool, device: str = DEVICE) -> None:
    """Run the tests of a file without an outcome in the journal, in this process."""
    import torch_sdaa  # noqa: F401 - makes the device, before PyTorch looks for devices to test

    warnings.simplefilter("ignore")
    done = read(journal)
    suite = unittest.TestLoader().loadTestsFromModule(load(path))
    tests = [test for test in cases(suite, all_classes, device) if test.id() not in done]
    unittest.TestSuite(tests).run(Notes(journal))
    sys.stdout.flush()
    os._exit(0)  # whatever PyTorch's tests left running must not decide their outcome


def load(path: Path) -> ModuleType:
    """Import a test file under its own name, with its folder on the path."""
    sys.path.insert(0, str(path.parent))
    sys.argv[:] = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
