"""``teco train gate`` on a script of a few milliseconds with selectable faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT

from engine import ConfigError, DataError
from toolkit.commands.train_gate import main

SCRIPT = str(Path(__file__).parents[1] / "training" / "gate" / "training_script.py")


def gate(*words: object, seeds: int = 2) -> int:
    """Judge device ``other``; the words after ``--`` are passed to the script."""
    before, _, after = " ".join(map(str, words)).partition("--- ")
    rest = ["--", *after.split(",")] if after else []
    return main([SCRIPT, "--device", "other", "--seeds", str(seeds), *before.split(), *rest])


def wrong(what: str, **how: int) -> int:
    return gate("---", f"--wrong={what}", **how)


def test_an_equal_training_passes_and_its_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {form: tmp_path / "deep" / f"gate.{form}" for form in ("json", "csv", "html")}
    assert gate(*(f"--{form} {file}" for form, file in files.items()), "--keep", tmp_path / "kept") == 0
    out, err = capsys.readouterr()
    assert "PASS: all 60 losses and the metrics of 2 seeds are those of cpu, bit for bit" in out
    assert err.splitlines()[0].startswith("cpu, seed 0: 30 steps, eval_metric 0.")
    found = json.loads(files["json"].read_text(encoding="utf-8"))
    assert (found["schema_version"], found["verdict"], found["tolerance"]) == (1, "PASS", 0.001)
    assert [(curve["device"], curve["seed"]) for curve in found["curves"]] == [
        ("cpu", 0),
        ("other", 0),
        ("cpu", 1),
        ("other", 1),
    ]
    assert found["curves"][0]["losses"] == found["curves"][1]["losses"] != found["curves"][2]["losses"]
    assert len(files["csv"].read_text(encoding="utf-8").splitlines()) == 3
    page = files["html"].read_text(encoding="utf-8")
    assert page.count("<polyline") == 4
    assert {file.name for file in (tmp_path / "kept").iterdir()} >= {"cpu_0.jsonl", "other_1.stdout"}


def test_noise_is_inconclusive_and_passes_at_a_wider_tolerance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate("--html", tmp_path / "page.html", "---", "--noise=0.002", seeds=4) == 4
    out = capsys.readouterr().out
    assert "the curves of 4 of 4 seeds diverge, the first at step 1 (seed 0)" in out
    assert "seeds would decide" in out
    assert "INCONCLUSIVE at 0.1 %" in out
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Difference of the losses, seed 0" in page
    assert gate("--tolerance 0.1", "---", "--noise=0.002", seeds=4) == 0


def test_rounding_to_float16_is_judged_by_the_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(f"--json {tmp_path / 'found.json'} --tolerance 0.0001", "---", "--wrong=float16", seeds=3) == 4
    assert "the curves of 3 of 3 seeds diverge" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    low, high = found["interval"]
    assert (found["verdict"], found["bounds"][1]["verdict"]) == ("INCONCLUSIVE", "PASS")
    assert low < -0.0001 < 0.0001 < high
    assert all(1e-5 < row["largest"] < 0.01 for row in found["rows"])


def test_a_device_that_loses_its_training_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert wrong("forgets", seeds=4) == 1
    assert "FAIL: " in capsys.readouterr().out


def test_nan_on_the_device_fails_and_nan_on_both_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert wrong("nan") == 1
    assert "FAIL: other, seed 0: the loss of step 7 is nan; 2 of 2 seeds" in capsys.readouterr().out
    with pytest.raises(DataError, match=r"seed 0: .*step 7 .*nan"):
        wrong("nan everywhere")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("crash", "exit code 1: ValueError: the card is on fire"),
        ("nothing", "wrote nothing .*--losses"),
        ("no losses", "wrote nothing .*--losses"),
        ("head alone", "wrote no loss"),
        ("no json", "line 1 .* JSON;"),
        ("no metric", r"'eval_metric 0\.98'"),
        ("device", "it ran on cpu, not on other; .*--device"),
    ],
)
def test_an_incomplete_run_is_one_line_with_its_name(what: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"^training_script\.py .*other, seed 0: .*{message}") as caught:
        wrong(what, seeds=1)
    assert "\n" not in str(caught.value)


def test_a_script_that_hangs_is_killed() -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match=r"seed 0: .*0\.5 s .*--timeout"):
        gate("--timeout 0.5", "---", "--wrong=hang", seeds=1)
    assert time.monotonic() - start < 50  # it would have slept for 60


def test_sigterm_ends_the_current_run_and_its_processes(tmp_path: Path) -> None:
    code = "import sys; from toolkit.commands.train_gate import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, SCRIPT, "--keep", str(tmp_path / "kept"), "--", "--wrong=hang"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as gating:
        while not (started := _children(gating.pid)) and gating.poll() is None:
            time.sleep(0.02)
        gating.terminate()
        assert gating.communicate(timeout=50)[1].rstrip().endswith("KeyboardInterrupt")
    assert started
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:  # it has ended
        return []


def test_a_script_that_ignores_its_seed_is_an_error() -> None:
    with pytest.raises(DataError, match=r"seeds 0 and 1 .*--seed"):
        wrong("seed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], r"^nowhere\.py is (no|not a) file"),
        ([SCRIPT, "--device", "cpu"], "^--device cpu .*baseline"),
        ([SCRIPT, "--tolerance", "0"], "--tolerance: '0' "),
        ([SCRIPT, "--timeout", "nan"], "--timeout: 'nan' "),
        ([SCRIPT, "--seeds", "0"], "--seeds: '0' "),
    ],
)
def test_invalid_flags_are_errors_before_a_run(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main(words)
