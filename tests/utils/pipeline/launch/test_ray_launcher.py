from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support import ROOT, RunPython

from engine import ConfigError, DataError, EngineError
from utils.pipeline.launch import ray_launcher
from utils.pipeline.launch.ray_launcher import Refused, cpus_each, launch
from utils.pipeline.launch.serialization import SCRIPT, load_script


@pytest.mark.parametrize(
    ("nodes", "workers", "expected"),
    [
        ([8], 2, 4),
        ([8], 3, 2),
        ([5], 2, 2),
        ([2], 4, 0.5),
        ([1], 3, 0.3333),
        ([4, 4], 2, 4),
        ([4, 1], 2, 2),
        ([64, 64, 0], 8, 16),
        ([1.5], 1, 1),
    ],
)
def test_cores_per_worker(nodes: list[float], workers: int, expected: float) -> None:
    assert cpus_each(nodes, workers) == expected


@given(st.lists(st.integers(0, 16), min_size=1, max_size=5).filter(any), st.integers(1, 40))
def test_all_workers_fit(nodes: list[int], workers: int) -> None:
    cpus = cpus_each(nodes, workers)
    assert sum(int(cores / cpus + 1e-9) for cores in nodes) >= workers


def test_a_cluster_without_cores() -> None:
    with pytest.raises(ConfigError, match="no cores"):
        cpus_each([0, 0], 2)


def _never() -> None:
    raise AssertionError


@pytest.mark.parametrize("workers", [0, -1])
def test_invalid_numbers_of_workers(workers: int) -> None:
    with pytest.raises(ConfigError, match="--num_workers"):
        launch(_never, (), workers, print)


def test_not_under_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="leave out one of them"):
        launch(_never, (), 2, print)


def test_ray_is_missing(run_python: RunPython) -> None:
    code = (
        "import sys\nsys.modules['ray'] = None\n"
        "from utils.pipeline.launch.ray_launcher import launch\nlaunch(print, (), 2, print)"
    )
    done = run_python("-c", code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tecoinfer_modelzoo.errors.ConfigError: --launcher ray needs Ray")
    assert done.stderr.endswith('run: pip install -c constraints.txt -e ".[ray]"\n')


def test_a_script_is_loaded_once_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, SCRIPT, sys.modules["__main__"])
    script = tmp_path / "script.py"
    script.write_text("value = 1\nif __name__ == '__main__':\n    raise SystemExit(3)\n")
    module = load_script(script)
    assert module.value == 1
    assert load_script(script) is module
    with pytest.raises(ConfigError, match=r"gone\.py is not a"):
        load_script(tmp_path / "gone.py")


def test_errors_of_the_zoo_keep_their_class() -> None:
    assert isinstance(ray_launcher._raised(Refused("DataError", "text")), DataError)
    assert isinstance(ray_launcher._raised(Refused("SomebodysError", "text")), EngineError)


def test_ray_and_mpi_are_imported_lazily(run_python: RunPython) -> None:
    code = (
        "import sys, utils.pipeline.launch, utils.pipeline.launch.mpi, utils.pipeline.launch.ray_launcher\n"
        "assert not {'ray', 'mpi4py'} & set(sys.modules)"
    )
    done = run_python("-c", code, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
