"""``docs/how-to/load_and_planning.md``: its commands run, and the simulated figures are those that it shows."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import Action, actions, bash, shown
from zoo_copy import with_teco

PAGE = (ROOT / "docs" / "how-to" / "load_and_planning.md").read_text(encoding="utf-8")
COMMANDS = [action for action in actions(PAGE) if action.kind == "bash"]


def run(action: Action, folder: Path, **variables: str) -> str:
    """Run commands of the page in a folder beside the examples."""
    if not (folder / "example").exists():
        (folder / "example").symlink_to(ROOT / "example", target_is_directory=True)
    environment = with_teco(ROOT, folder / "bin")
    (folder / "bin" / "tecoexec").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tecoexec "$@"\n', encoding="utf-8")
    (folder / "bin" / "tecoexec").chmod(0o755)
    return bash(action.text, folder, {**environment, "OMP_NUM_THREADS": "1", **variables})


def command(words: str) -> Action:
    (found,) = [action for action in COMMANDS if words in action.text]
    return found


def test_every_command_is_run_here() -> None:
    assert len(COMMANDS) == 5
    words = ("--target_qps 100", "--accuracy", "--qps 20000", "--sweep_qps", "TECO_SIM_PACED")
    assert len({command(one).text for one in words}) == 5


@pytest.mark.slow
def test_a_plan_is_the_one_shown(tmp_path: Path) -> None:
    lines = run(command("--qps 20000"), tmp_path).splitlines()
    assert not [line for line in lines if line not in shown(PAGE, "text")]
    assert json.loads((tmp_path / "plan.json").read_text())["plans"][0]["cards"] == 1
    assert "<polyline" in (tmp_path / "plan.html").read_text()


@pytest.mark.slow
def test_a_sweep_is_the_one_shown(tmp_path: Path) -> None:
    lines = run(command("--sweep_qps"), tmp_path).splitlines()
    table = [line for line in lines if re.match(r"(qps|5000|50000|500000)\b", line)]
    assert len(table) == 4
    assert not [line for line in table if line not in shown(PAGE, "text")]


@pytest.mark.slow
def test_a_load_test(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    printed = run(command("--target_qps 100"), tmp_path)
    data = json.loads((tmp_path / "server.json").read_text())
    assert data["loadgen"]["valid"] is True
    assert (tmp_path / "server_loadgen" / "mlperf_log_summary.txt").stat().st_size > 0
    assert data["summary"]["queries"] > 600
    assert "LoadGen: VALID\n" in printed


@pytest.mark.slow
def test_the_metric_of_the_accuracy_log(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    lines = run(command("--accuracy"), tmp_path).splitlines()
    metric = [line for line in lines if "metric" in line]
    assert len(metric) == 2
    assert not [line for line in metric if line not in shown(PAGE, "text")]


@pytest.mark.slow
def test_a_paced_card(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    printed = run(command("TECO_SIM_PACED"), tmp_path)
    assert "latency (simulated, paced): " in printed
    assert "eval_metric 0.994444\n" in printed
    assert (tmp_path / "paced_logs" / "mlperf_log_summary.txt").stat().st_size > 0


def test_the_page_can_be_read() -> None:
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in prose.splitlines() if len(line) > 150 and not line.startswith("|")]
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE)
    assert links
    assert not [link for link in links if not (ROOT / "docs/how-to" / link).exists()]
    files = re.findall(r"`((?:tests|tecoexec|benchmarks)/[\w/.]+\.py)`", PAGE)
    assert files
    assert not [file for file in files if not os.path.isfile(ROOT / file)]
