from __future__ import annotations

import io
from pathlib import Path

import pytest
from support import ROOT, RunPython

from utils.pipeline.launch import mpi
from utils.pipeline.report.report import Report

CROWD = ROOT / "tests" / "crowd.py"
BLOCKED = """
import runpy, sys
sys.modules["mpi4py"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_rank_and_size_set_by_hand_are_not_merged(run_python: RunPython, tmp_path: Path) -> None:
    """And need no mpi4py."""
    settings = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    done = run_python("-W", "error", "-c", BLOCKED, CROWD, tmp_path, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rank 1 of 4: the metric covers this process's part only\neval_metric ")
    assert '"samples": 25,' in (tmp_path / "result.json").read_text()


def test_rank_set_by_hand_without_samples(run_python: RunPython, tmp_path: Path) -> None:
    settings = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    done = run_python(CROWD, tmp_path, "--samples", 2, **settings)
    assert done.returncode == 2
    assert done.stderr == "error: rank 3 of 4 has no sample that can be evaluated; use fewer processes\n"


def test_missing_mpi4py_is_reported_before_the_work(run_python: RunPython, tmp_path: Path) -> None:
    settings = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    done = run_python("-c", BLOCKED, CROWD, tmp_path, **settings)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.count("\n") == 1
    assert "needs mpi4py" in done.stderr
    assert 'run: pip install -c constraints.txt -e ".[mpi]"' in done.stderr


def test_one_process_needs_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("top1", 1.0, 1, 1, 1.0, 1.0, 0.1, 0.1, 0.1)
    said: list[str] = []
    assert mpi.gather(lambda: report, said.append) is report
    assert not said


def test_lines_begin_with_the_rank() -> None:
    stream = io.StringIO()
    prefixed = mpi._Prefixed("rank 2: ", stream)
    for text in ("a", "b\n\nc\nd", "\n"):
        assert prefixed.write(text) == len(text)
    assert stream.getvalue() == "rank 2: ab\nrank 2: c\nrank 2: d\n"
