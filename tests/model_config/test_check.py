"""Tests of the whole check: exit codes, reports, cache and selection, on stub models and on the digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rich")

from stub_model import Stub, write_zoo

from model_config.cases.config import ROOT
from model_config.check import main


def good(stub: Stub) -> None:
    """Break nothing."""


def too_few(stub: Stub) -> None:
    stub.answers["samples"] = 300


def fails(stub: Stub) -> None:
    stub.script("example_multi_batch.py", "    Path(", '    raise SystemExit("no image")\n    Path(')


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "zoo").mkdir()
    return tmp_path / "zoo"


def check(root: Path, *argv: str, code: int) -> dict[str, Any]:
    out = root.parent / "out.json"
    out.unlink(missing_ok=True)
    assert main(["--json", str(out), "--work-dir", str(root.parent / "work"), *argv], root=root) == code
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_the_exit_code_is_the_worst_verdict(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zoo(root, {"good": good, "few": too_few, "bad": fails})
    assert check(root, "good", "few", code=0)["verdict"] == "PASS"
    assert check(root, "good", "few", "--strict", code=4)["verdict"] == "INCONCLUSIVE"
    found = check(root, "--strict", code=1)
    assert [case["verdict"] for case in found["cases"]] == ["PASS", "INCONCLUSIVE", "FAIL"]
    assert found["cases"][1]["accuracy"][0]["needed"] > 3000
    shown = capsys.readouterr()
    assert "multi: exit code 1: no image" in shown.out
    assert shown.err == ""  # no progress bar outside a terminal


def test_structure_alone_runs_no_step(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def unreadable(stub: Stub) -> None:
        stub.script("example_multi_batch.py", "import", "import (")

    write_zoo(root, {"good": good, "fails": fails, "bad": unreadable})
    found = check(root, "--structure", code=1)
    assert [case["verdict"] for case in found["cases"]] == ["PASS", "PASS", "FAIL"]  # `fails` does not when it is read
    assert not any(case["steps"] or case["cached"] for case in found["cases"])
    assert {finding["rule"] for finding in found["cases"][2]["findings"]} >= {"syntax"}
    assert "structure only: no step was run" in capsys.readouterr().out
    assert main(["--structure", "--update"], root=root) == 2
    assert "--structure runs no step" in capsys.readouterr().err


def test_deprecated_key_has_no_effect(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def excused(stub: Stub) -> None:
        stub.answers["wrong"].update(sdaa=list(range(60)))
        stub.case["accuracy"] = {"accept_inconclusive": "300 images are all there are"}

    write_zoo(root, {"few": excused})
    (case,) = check(root, code=1)["cases"]
    assert case["parts"]["accuracy"] == "FAIL"


@pytest.mark.long
@pytest.mark.slow
def test_a_case_that_passed_is_taken_from_the_cache_and_a_failed_one_runs_again(root: Path) -> None:
    write_zoo(root, {"good": good, "bad": fails})
    first = check(root, code=1)
    second = check(root, code=1)
    assert [case["cached"] for case in first["cases"] + second["cases"]] == [False, False, True, False]
    assert [case["reasons"] for case in first["cases"]] == [case["reasons"] for case in second["cases"]]
    script = root / "contrib/example/stubs/good/example_valid.py"
    script.write_text(script.read_text() + "\n# changed\n")
    assert not any(case["cached"] for case in check(root, code=1)["cases"])
    assert not any(case["cached"] for case in check(root, "--no-cache", code=1)["cases"])
    assert [case["cached"] for case in check(root, code=1)["cases"]] == [True, False]


def test_a_pass_without_the_cache_replaces_the_stored_result(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_zoo(root, {"good": good})
    with monkeypatch.context() as broken:
        broken.setattr("model_config.run.runner.sys.executable", str(root / "no_such_python"))
        check(root, code=1)
    assert check(root, "--no-cache", code=0)["cases"][0]["cached"] is False
    assert check(root, code=0)["cases"][0]["cached"] is True


AS_TECO = (
    "import sys; from pathlib import Path\n"
    "from model_config.check import command; from utils.pipeline.cli import run\n"
    "run(lambda: command(sys.argv[2:], Path(sys.argv[1])))"
)
"""What the command `teco check` does, for another repository."""


def sets_its_streams(stub: Stub) -> None:
    """Have a step change how its standard output writes, which fails on a stream that was opened on another file."""
    ending = "    sys.stdout.reconfigure(errors='backslashreplace')\n    main()"
    stub.script("example_single_batch.py", '__main__":\n    main()', '__main__":\n' + ending)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("terminal", [False, True])
def test_more_cases_than_jobs_pass_in_a_file_and_on_a_terminal(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, unbuffered: str
) -> None:
    write_zoo(root, {"one": sets_its_streams, "two": sets_its_streams, "bad": fails})
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # else numpy keeps threads, and steps are not forked
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words = [sys.executable, "-c", AS_TECO, str(root), "--jobs", "1", "--json", str(tmp_path / "out.json")]
    if terminal:
        code, shown = on_a_terminal(words)
    else:
        ran = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        code, shown = ran.returncode, ran.stdout.decode()
    assert code == 1
    found = json.loads((tmp_path / "out.json").read_text())["cases"]
    assert {case["case"]: case["verdict"] for case in found} == {"one": "PASS", "two": "PASS", "bad": "FAIL"}
    assert all(case["case"] in shown for case in found)
    assert "\\x1b" not in shown
    assert ("\x1b[" in shown) == terminal


def on_a_terminal(words: list[str]) -> tuple[int, str]:
    """Run a command with a pseudo-terminal as its three standard streams; return its exit code and output."""
    ours, theirs = os.openpty()
    with subprocess.Popen(words, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # Linux reports the end of a terminal as EIO
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)
    return running.returncode, shown.decode()


def test_only_affected_cases_are_checked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zoo(root, {"one": good, "two": good})
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=root, check=True)  # noqa: S607
    assert main(["--changed-since", "HEAD"], root=root) == 0
    assert "no model is affected" in capsys.readouterr().out
    script = root / "contrib/example/stubs/two/example_valid.py"
    script.write_text(script.read_text() + "\n# changed\n")
    assert [case["case"] for case in check(root, "--changed-since", "HEAD", code=0)["cases"]] == ["two"]
    assert main(["--changed-since", "nowhere"], root=root) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_scorecard_is_written_and_compared(root: Path) -> None:
    # The stored host time may not match the current speed of this machine: use a run too short to be judged.
    write_zoo(root, {"good": lambda stub: stub.answers.update(seconds=0.5)})
    folder = root / "contrib/example/stubs/good"
    (case,) = check(root, "--update", code=0)["cases"]
    assert [note.rpartition("/")[2] for note in case["notes"]] == ["numerics.yaml", "perf.yaml"]
    stored = yaml.safe_load((folder / "numerics.yaml").read_text())["metrics"]
    assert [(one["target"], one["dtype"], one["metric"], one["samples"]) for one in stored] == [
        ("cpu", "float32", "top1", 6000),
        ("onnx", "float32", "top1", 6000),
        ("sdaa", "float16", "top1", 6000),
    ]
    assert [one["value"] for one in stored] == pytest.approx([1 - 2 / 6000, 1 - 3 / 6000, 1 - 3 / 6000])
    (case,) = check(root, code=0)["cases"]
    assert case["parts"]["speed"] == "PASS"
    assert {speed["bucket"] for speed in case["speed"] if speed["what"].startswith("simulated")} == {"same"}
    answers = folder / "data/answers.json"
    answers.write_text(answers.read_text().replace("1000.0", "700.0"))
    (case,) = check(root, code=1)["cases"]
    assert case["parts"]["speed"] == "FAIL"
    assert case["speed"][0]["bucket"] == "1.2"


def test_a_target_that_a_model_does_not_run_on_is_noted_and_left_out(root: Path) -> None:
    write_zoo(root, {"good": lambda stub: stub.answers["wrong"].pop("cpu")})
    (case,) = check(root, "--update", code=0)["cases"]
    assert [note.partition(":")[0] for note in case["notes"]] == ["cpu is not in the scorecard", "written", "written"]
    stored = yaml.safe_load((root / "contrib/example/stubs/good/numerics.yaml").read_text())["metrics"]
    assert [one["target"] for one in stored] == ["onnx", "sdaa"]


def test_every_report_is_written(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    write_zoo(root, {"good": good, "bad": fails})
    files = {kind: tmp_path / "reports" / f"out.{kind}" for kind in ("junit", "markdown", "html")}
    found = check(root, *(word for kind, path in files.items() for word in (f"--{kind}", str(path))), code=1)
    suites = ElementTree.parse(files["junit"]).getroot()  # noqa: S314
    assert {suite.get("name") for suite in suites.iter("testsuite")} >= {"good", "bad"}
    for kind in ("markdown", "html"):
        assert "no image" in files[kind].read_text(encoding="utf-8")
    schema = json.loads((ROOT / "model_config/reports/schema.json").read_text(encoding="utf-8"))
    pytest.importorskip("jsonschema").validate(found, schema)


def test_unusable_configuration_and_unknown_cases_exit_with_2(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_zoo(root, {"good": good})
    broken = tmp_path / "broken.yaml"
    broken.write_text("{")
    file = tmp_path / "file"
    file.touch()
    for argv, expected in (
        (["god"], "unknown case 'god'; did you mean 'good'?"),
        (["--config", str(broken)], "broken.yaml"),
        (["--config", str(tmp_path / "gone.yaml")], "No such file or directory"),
        (["--work-dir", str(file)], "cannot be used"),
    ):
        assert main(argv, root=root) == 2, argv
        shown = capsys.readouterr()
        assert expected in shown.err + shown.out
    for flag, text in (("--timeout", "0"), ("--timeout", "nan"), ("--memory", "-1"), ("--jobs", "0"), ("--jobs", "x")):
        with pytest.raises(SystemExit, match="2"):
            main([flag, text], root=root)
        assert flag in capsys.readouterr().err


def test_a_broken_file_does_not_stop_the_cases_of_another(root: Path, tmp_path: Path) -> None:
    file = write_zoo(root, {"good": good}, extra="- case_name: half\n")
    found = check(root, "--config", str(file), code=1)
    assert [case["verdict"] for case in found["cases"]] == ["PASS", "FAIL"]
    assert any("half" in reason for reason in found["cases"][1]["reasons"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_check_keeps_results(root: Path, tmp_path: Path, number: int) -> None:
    def slow(stub: Stub) -> None:
        stub.script("example_single_batch.py", "    Path(", '    print("started", flush=True)\n    Path(')
        stub.script("example_single_batch.py", "import sys\n", "import sys\nimport time\n")
        stub.script("example_single_batch.py", '    print("sample: 1")', "    time.sleep(60)")

    write_zoo(root, {"good": good, "slow": slow})
    # As `python -m model_config.check` does it, but for another repository.
    code = (
        "import sys; from pathlib import Path; from model_config.check import command\n"
        "sys.exit(command(sys.argv[2:], Path(sys.argv[1])))"
    )
    work = tmp_path / "work"
    command = [sys.executable, "-c", code, str(root), "--work-dir", str(work), "--json", str(tmp_path / "out.json")]
    log = work / "logs/slow/single.stdout"
    with subprocess.Popen(
        [*command, "--jobs", "1"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        while running.poll() is None and not (log.is_file() and "started" in log.read_text()):
            time.sleep(0.02)
        running.send_signal(number)
        out, err = running.communicate(timeout=20)
    assert running.returncode == 130, err
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["interrupted"] is True
    cases = {case["case"]: case for case in found["cases"]}
    assert cases["good"]["verdict"] == "PASS"
    assert [step["step"] for step in cases["slow"]["steps"]] == ["export", "valid"]
    assert "Traceback" not in out + err
    assert sorted(path.name for path in work.iterdir()) == ["logs"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_the_digits_pass(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out.json"
    assert main(["digits", "--json", str(out), "--no-cache", "--work-dir", str(tmp_path / "work")]) == 0
    (case,) = json.loads(out.read_text())["cases"]
    assert [step["passed"] for step in case["steps"]] == [True] * 5
    assert case["accuracy"][0]["samples"] == 360
    assert case["steps"][2]["images"]
    (printed,) = (tmp_path / "work/logs/digits").glob("*export*stdout*")
    assert "digits_float16_dyn.onnx: largest relative error" in printed.read_text()
