"""Faulty third-party engines: one line and exit code 2 for any exception or result."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support import DIGITS, ROOT
from vendor_runs import Ran, environment, installed, run_all

from engine import EngineSpec, TecoInferError, open_engine
from engine.registry import _registered
from tests.fuzz.makers.odd_engines import HARMLESS, REFUSED, alike

VALID = "example_valid.py"
SOME = (
    *("exit_zero", "keyboard", "newline", "surrogate", "mute_zoo", "broken_pipe", "bare_array"),
    *("OpenExits", "CloseExits", "OtherKind"),
)
"""Failures that are always run as scripts."""

UNASKED = ("ReportRaises", "ReportsNothing", "OddCalibration")
"""Failures of methods that only an evaluation calls."""

SCRIPTS = (VALID, "example_single_batch.py", "example_multi_batch.py")
ODD = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def words(script: str, target: str, *more: str) -> list[str]:
    batch = {VALID: ["--batch_size", "48"], SCRIPTS[2]: ["--batch_size", "12"]}.get(script, [])
    return [str(DIGITS / script), "--target", target, *batch, *more]


def check_refused(target: str, ran: Ran) -> None:
    """Check that a run ended with one line that names the engine, and without a result."""
    errors = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert ran.code == 2, (target, ran)
    assert len(errors) == 1, (target, ran)
    assert ran.stderr.splitlines()[-1] == errors[0], (target, ran)
    assert target in errors[0], (target, ran)
    assert "Traceback" not in ran.stderr
    assert not ODD.search(ran.stderr), (target, ran)
    assert len(errors[0]) <= 1300
    assert "eval_metric 0.9999" not in ran.stdout.splitlines()


def run_on_all(folder: Path, targets: Sequence[str], commands: Sequence[Sequence[str]]) -> list[Ran]:
    return run_all(installed(folder, targets), commands)


@pytest.mark.slow
def test_a_failing_engine_is_one_line(tmp_path: Path) -> None:
    ran = run_on_all(tmp_path, SOME, [words(VALID, target) for target in SOME])
    for target, one in zip(SOME, ran, strict=True):
        check_refused(target, one)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of the engine's own thread
@pytest.mark.parametrize("target", REFUSED)
def test_every_way_to_fail_is_an_error_of_the_engine(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registered, target, REFUSED[target])
    images = np.ones((4, 3, 32, 32), np.float32)
    with pytest.raises(TecoInferError, match=target):  # noqa: PT012 - at one of these
        engine = open_engine(target, EngineSpec(DIGITS / "digits_dyn.onnx"))
        for _ in range(3):
            engine.run_async(images).result()
        engine.call_shards([[images]])
        engine.describe()
        bool(engine.calibration_samples)
        engine.device_report()
        engine.release()


@pytest.mark.long
@pytest.mark.slow
def test_every_way_to_fail_is_one_line(tmp_path: Path) -> None:
    targets = list(REFUSED)
    for target, ran in zip(targets, run_on_all(tmp_path, targets, [words(VALID, t) for t in targets]), strict=True):
        check_refused(target, ran)
        if target not in ("CloseRaises", "CloseExits"):
            assert "eval_metric" not in ran.stdout


@pytest.mark.parametrize("target", HARMLESS)
@pytest.mark.filterwarnings("ignore:hot")
def test_another_form_of_the_same_is_the_same(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_registered, target, alike()[target])
    spec, images = EngineSpec(DIGITS / "digits_dyn.onnx"), np.random.default_rng(1).random((4, 3, 32, 32), np.float32)
    with open_engine(target, spec) as engine, open_engine("onnx", spec) as baseline:
        found, want = engine(images), baseline(images)
    assert type(found) is np.ndarray
    assert (found.dtype.isnative, found.flags.c_contiguous, found.flags.writeable) == (True, True, True)
    np.testing.assert_array_equal(found, want)


def test_a_description_is_one_line(tmp_path: Path) -> None:
    (ran,) = run_on_all(tmp_path, ["Forges"], [words(SCRIPTS[1], "Forges")])
    assert ran.code == 0
    assert not [line for line in ran.stdout.splitlines() if line.startswith("eval_metric")]
    assert not ODD.search(ran.stdout)


@pytest.mark.slow
@pytest.mark.long
def test_every_way_to_fail_in_a_tool(tmp_path: Path) -> None:
    unasked = (*UNASKED, "DescribeExits", "DescribesNothing", "ThirdCall", "OtherKind")
    targets = [target for target in REFUSED if target not in unasked]
    model = str(DIGITS / "digits_dyn.onnx")
    ran = run_on_all(tmp_path, targets, [["toolkit.cli", "compare", model, "--b", target] for target in targets])
    for target, one in zip(targets, ran, strict=True):
        check_refused(target, one)


def check_alike(folder: Path, targets: Sequence[str]) -> None:
    commands = [words(VALID, "onnx"), *(words(VALID, target) for target in targets)]
    baseline, *others = run_on_all(folder, targets, commands)
    metric = baseline.stdout.splitlines()[-2]
    assert metric.startswith("eval_metric 0.99")
    for target, ran in zip(targets, others, strict=True):
        assert (ran.code, ran.stdout.splitlines()[-2]) == (0, metric), (target, ran)
        assert not ODD.search(ran.stderr)


def test_an_engine_of_one_buffer_has_the_metric_of_the_baseline(tmp_path: Path) -> None:
    check_alike(tmp_path, ["one_buffer", "input_buffer"])


@pytest.mark.slow
@pytest.mark.long
def test_another_form_has_the_metric_of_the_baseline(tmp_path: Path) -> None:
    check_alike(tmp_path, list(HARMLESS))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS[1:])
def test_every_way_to_fail_in_the_other_scripts(script: str, tmp_path: Path) -> None:
    targets = [target for target in REFUSED if target not in UNASKED]
    if script == SCRIPTS[1]:
        targets = [target for target in targets if target not in ("ThirdCall", "OtherKind")]
    ran = run_on_all(tmp_path, targets, [words(script, target) for target in targets])
    for target, one in zip(targets, ran, strict=True):
        check_refused(target, one)


@pytest.mark.slow
@pytest.mark.long
def test_every_way_to_fail_in_tecoexec(tmp_path: Path) -> None:
    model = str(DIGITS / "digits_dyn.onnx")
    targets = [target for target in REFUSED if target not in (*UNASKED, "DescribeExits", "DescribesNothing")]
    commands = [
        ["tecoexec", "--onnx", model, "--target", target, "--input_shapes", "4*3*32*32", *queued]
        for target in targets
        for queued in ([], ["--runSync"])
    ]
    ran = run_on_all(tmp_path, targets, commands)
    for place, target in enumerate(targets):
        check_refused(target, ran[2 * place])
        check_refused(target, ran[2 * place + 1])


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "target"),
    [
        pytest.param([VALID], "Endless", marks=pytest.mark.slow),
        pytest.param([SCRIPTS[1]], "OpensNever"),
        pytest.param([SCRIPTS[1]], "Endless", marks=pytest.mark.slow),
        pytest.param([SCRIPTS[2]], "Endless", marks=pytest.mark.slow),
        pytest.param(
            ["-m", "tecoexec", "--onnx", str(DIGITS / "digits_dyn.onnx"), "--input_shapes", "4*3*32*32"], "Endless"
        ),
    ],
    ids=["valid", "opening", "single", "multi", "tecoexec"],
)
def test_ctrl_c_ends_a_call_that_never_returns(command: list[str], target: str, tmp_path: Path) -> None:
    folder = installed(tmp_path, [target])
    words = command if command[0] == "-m" else [str(DIGITS / command[0])]
    process = subprocess.Popen(
        [sys.executable, *words, "--target", target],
        cwd=ROOT,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == "began\n"
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert [line.split()[0] for line in said.splitlines() if line != "began"] == ["interrupted"], said
