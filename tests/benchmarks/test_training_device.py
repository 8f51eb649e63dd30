"""The benchmarks of the training device in their quick mode: what they print and store, not how fast it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import ROOT

if find_spec("torchvision") is None:
    pytest.skip("torchvision is not installed", allow_module_level=True)


@pytest.mark.long
@pytest.mark.slow
def test_operators_and_a_step_compared_with_the_cpu(tmp_path: Path):
    from tests.torch_sdaa.hard.check import environment

    file = tmp_path / "result.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_training_device.py"), "--quick", "--json", str(file)]
    env = {**os.environ, **environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "overhead an operator:" in done.stdout
    assert "resnet18 step: sdaa" in done.stdout
    told = json.loads(file.read_text())
    assert (told["schema_version"], told["benchmark"], told["quick"]) == (1, "training_device", True)
    assert {"add", "mm", "view"} <= set(told["operators"])
    differences = sorted(row["difference_us"] for row in told["operators"].values())
    assert told["overhead_us"] == differences[len(differences) // 2]
    assert len(told["step_sdaa_ms"]) == len(told["step_cpu_ms"]) == 3


@pytest.mark.long
@pytest.mark.slow
def test_steps_of_networks_compiled_and_not(tmp_path: Path):
    pytest.importorskip("transformers")
    from tests.torch_sdaa.hard.check import environment

    file = tmp_path / "result.json"
    words = ["--quick", "--models", "squeezenet1_1", "lstm", "--ways", "CPU", "sdaa", "sdaa compiled"]
    command = [sys.executable, str(ROOT / "benchmarks" / "training_step.py"), *words, "--json", str(file)]
    env = {**os.environ, **environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[1] for line in done.stdout.splitlines()[2:]] == ["squeezenet1_1", "lstm"]
    assert "failed" not in done.stdout
    told = json.loads(file.read_text())
    assert (told["schema_version"], told["benchmark"], told["quick"]) == (1, "training_step", True)
    for found in told["steps_ms"].values():
        ways = {"CPU", "sdaa", "sdaa compiled"}
        assert set(found) == ways | {f"{way}, wall" for way in ways} | {"sdaa, simulated", "sdaa compiled, simulated"}
        assert all(len(values) == 1 and values[0] > 0 for values in found.values())


@pytest.mark.long
@pytest.mark.slow
def test_rows_are_put_into_the_table_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import training_step

    begin, end, title = training_step.BEGIN, training_step.END, training_step.head(("CPU",))[1]
    page = tmp_path / "page.md"
    page.write_text(f"above\n{begin}{end}\nbelow\n", encoding="utf-8")
    for line in ("| lstm | 1 |", "| resnet18 | 2 |", "| lstm | 3 |"):
        training_step.write_row(page, title, line)
    rows = f"{title}\n| resnet18 | 2 |\n| lstm | 3 |\n"
    assert page.read_text(encoding="utf-8") == f"above\n{begin}{rows}{end}\nbelow\n"

    assert all(mark in training_step.PAGE.read_text(encoding="utf-8") for mark in (begin, end))
    monkeypatch.setattr(sys, "argv", ["training_step.py", "--quick", "--write"])
    with pytest.raises(SystemExit) as caught:
        training_step.main()
    assert caught.value.code == 2
    assert "leave out --ways and --quick" in capsys.readouterr().err.splitlines()[-1]
